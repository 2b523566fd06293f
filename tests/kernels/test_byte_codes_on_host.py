"""What dequant/byte_codes.cuh makes of every code of every type that 8-bit products take, run by a
C++ compiler: exact, without a GPU."""

from __future__ import annotations

import ctypes

import pytest
import torch
from host_library import host_library

from humming.quantize import layout_cuda_a8
from humming.quantize.values import decode
from humming.spec.carriers import carrier
from humming.spec.combinations import why_not
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat

PRODUCTS = {"int8": "Int8Products", "fp8e4m3": "E4m3Products", "fp8e5m2": "E5m2Products"}
TYPES = (
    *(f"int{bits}" for bits in range(1, 8)),
    *(f"uint{bits}g64z" for bits in range(1, 8)),
    *("fp3e1m1", "fp3e2m0", "fp4e2m1", "fp4e3m0", "fp4e1m2", "fp5e2m2", "fp6e3m2", "fp6e2m3"),
    *("fp7e3m3", "fp7e4m2", "fp5e4m0"),
)
ZEROS = (1, 0)
"""Of rows g and g + 8, in units of the codes."""

LOOP = """
extern "C" int {name}(const u32* in, u32* out) {{
  using C = {codes};
  const ByteZeros zeros = {{{{in_bytes({low}), in_bytes({high})}}}};
  for (int lane = 0; lane < 32; ++lane) {{
    u32 w[C::bits];
    for (int j = 0; j < C::bits; ++j) w[j] = in[lane * C::bits + j];
    for (int s = 0; s < 2; ++s) {{
      u32 a[4];
      byte_fragment<C>(a, w, s, zeros);
      for (int i = 0; i < 4; ++i) out[(lane * 2 + s) * 4 + i] = a[i];
    }}
  }}
  return C::lift;
}}
"""


def _ways() -> list[tuple[str, str]]:
    """(weight, type that is multiplied) of all that may meet."""
    pairs = [(weight, held) for weight in TYPES for held in PRODUCTS]
    formats = [(weight, held, f"{weight}-{held}") for weight, held in pairs]
    return [(w, held) for w, held, f in formats if not why_not(f) and carrier(f) == held]


def _codes(weight: str, held: str) -> str:
    stored = QuantFormat.parse(weight).weight.dtype
    if stored.is_integer:
        zeros = "true" if stored.kind == "uint" else "false"
        return f"ByteIntegers<{stored.bits}, {PRODUCTS[held]}, {zeros}>"
    return f"ByteFloats<{stored.exponent_bits}, {stored.mantissa_bits}, {PRODUCTS[held]}>"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("codes")
    text = '#include "humming/dequant/byte_codes.cuh"\nusing namespace humming;\n'
    for number, way in enumerate(_ways()):
        text += LOOP.format(name=f"f{number}", codes=_codes(*way), low=ZEROS[0], high=ZEROS[1])
    return host_library(text, folder, "host_block", "-O0")


def _lane_words(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Words [32 lanes, bits] of the first tile."""
    parts, begin = [], 0
    for width in layout_cuda_a8.PLANES[bits]:
        parts.append(packed[0, 0, begin : begin + 32 * width].view(32, width))
        begin += 32 * width
    return torch.cat(parts, 1).contiguous()


@pytest.mark.parametrize(
    ("number", "way"), list(enumerate(_ways())), ids=list(map("-".join, _ways()))
)
def test_every_code_comes_out_exact(library, number, way):
    stored, held = QuantFormat.parse(way[0]).weight.dtype, dtype(way[1])
    draw = torch.Generator().manual_seed(number)
    bits = torch.randperm(1024, generator=draw).view(16, 64) % (1 << stored.bits)
    center = 1 << (stored.bits - 1)
    if stored.kind == "int":
        codes, values = (bits - center).to(torch.int8), (bits - center).double()
    elif stored.kind == "uint":
        zeros = torch.tensor(ZEROS).repeat_interleave(8)[:, None]
        codes, values = bits.to(torch.uint8), (bits - zeros).double()
    else:
        codes = bits.to(torch.uint8)
        values = decode(codes, stored, torch.float64)
    words = _lane_words(layout_cuda_a8.pack_codes(codes, stored.bits), stored.bits)
    out = torch.zeros((32, 2, 4), dtype=torch.int32)
    pointer = ctypes.c_void_p
    lift = getattr(library, f"f{number}")(pointer(words.data_ptr()), pointer(out.data_ptr()))
    found = out.view(torch.int8 if held.is_integer else torch.uint8).view(32, 2, 4, 4)
    # rows: i_row, g; columns: step, i_k, t, byte
    split = values.view(2, 8, 2, 2, 4, 4).permute(1, 4, 2, 3, 0, 5).reshape(32, 2, 4, 4)
    assert torch.equal(decode(found, held, torch.float64) * 2.0**-lift, split)
