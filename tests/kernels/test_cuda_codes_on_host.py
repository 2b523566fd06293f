"""What dequant/ makes of every code of every type, run by a C++ compiler: exact, without a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from cuda_cases import problem
from host_library import host_library

from humming.jit.cuda.weight_constants import CXX_TYPES, weight_constants
from humming.jit.load import TORCH_DTYPES
from humming.quantize import layout_cuda
from humming.quantize.values import decode
from humming.spec.dtypes import DType
from humming.spec.formats import QuantFormat

TYPES = (
    *(f"int{bits}" for bits in range(1, 9)),
    *(f"uint{bits}z" for bits in range(1, 9)),
    *("fp3e1m1", "fp3e2m0", "fp4e2m1", "fp4e3m0", "fp4e1m2", "fp5e2m2", "fp6e3m2", "fp6e2m3"),
    *("fp7e3m3", "fp8e4m3", "fp8e5m2", "fp8e3m4", "fp8e2m5", "fp8e1m6", "fp8e6m1", "fp8e7m0"),
)
KINDS = {
    "fragment": "u32 a[4]; C::fragment(a, w, s);",
    "raw": "u32 a[4]; C::raw(a, w, s);",
    "lifted": "u32 a[4]; C::lifted(a, w, s);",
    "wide": "float2 v[4]; C::wide(v, w, s);",
    "scaled": "W of; of.set({scales}, {zeros}, 0); u32 a[4]; of.fragment(a, w, s);",
}
"""Ways to a step's registers, or to fp32 pairs."""
SCALES, ZEROS = (1.0, 0.5), (3.0, 1.0)
"""Of rows g and g + 8."""

LOOP = """
extern "C" void {name}(const u32* in, float* out) {{
  using C = {codes};
  {weights}
  for (int lane = 0; lane < 32; ++lane) {{
    u32 w[C::bits];
    for (int j = 0; j < C::bits; ++j) w[j] = in[lane * C::bits + j];
    for (int s = 0; s < 4; ++s) {{
      float* o = out + (lane * 4 + s) * 8;
      {call}
      for (int i = 0; i < 4; ++i) {{ {store} }}
    }}
  }}
}}
"""
Way = tuple[str, str, str]


def _ways() -> list[Way]:
    """(type, activation, kind) of all that a family may ask for."""
    found: list[Way] = []
    for name in TYPES:
        stored = QuantFormat.parse(name).weight.dtype
        for activation in CXX_TYPES:
            fits = activation == "bf16" or stored.exponent_bits <= 5
            raw = stored.is_integer and (activation == "fp16" or stored.bits < 8)
            kinds = {"fragment": fits, "raw": raw, "lifted": fits and not stored.is_integer}
            kinds["scaled"] = fits
            found += [(name, activation, kind) for kind, asked in kinds.items() if asked]
        found.append((name, "bf16", "wide"))
    return found


def _store(kind: str, activation: str) -> str:
    if kind == "wide":
        return "o[2 * i] = v[i].x; o[2 * i + 1] = v[i].y;"

    def half(of: str) -> str:
        return f"{CXX_TYPES[activation]}::widen(static_cast<u16>({of}))"

    low, high = half("a[i]"), half("a[i] >> 16")
    if kind == "raw":
        bias = "C::negative_bias(s, i)"
        low, high = f"{low} + {half(bias)}", f"{high} + {half(f'{bias} >> 16')}"
    if kind == "lifted":
        low, high = f"std::ldexp({low}, C::lift)", f"std::ldexp({high}, C::lift)"
    if kind == "scaled":
        low, high = f"std::ldexp({low}, W::lift)", f"std::ldexp({high}, W::lift)"
    return f"o[2 * i] = {low}; o[2 * i + 1] = {high};"


def _weights(has: dict[str, Any], activation: str) -> str:
    zeros = "true" if has["has_zero_points"] else "false"
    return f"using W = ScaledWeights<{has['codes']}, {CXX_TYPES[activation]}, true, {zeros}>;"


def _pair(values: tuple[float, float], activation: str) -> str:
    """Two numbers as layout cuda_n16k64 packs them."""
    halves = torch.tensor(values).to(TORCH_DTYPES[activation]).view(torch.int16).tolist()
    return f"{halves[0] | halves[1] << 16}u"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("codes")
    text = '#include "humming/dequant/skinny_codes.cuh"\n'
    text += '#include "humming/dequant/scaled_weights.cuh"\nusing namespace humming;\n'
    for number, (name, activation, kind) in enumerate(_ways()):
        has = weight_constants(problem(activation, format=name))
        codes = has["wide_codes" if kind == "wide" else "codes"]
        store = _store(kind, activation)
        call, weights = KINDS[kind], ""
        if kind == "scaled":
            weights = _weights(has, activation)
            call = call.format(scales=_pair(SCALES, activation), zeros=_pair(ZEROS, activation))
        text += LOOP.format(name=f"f{number}", codes=codes, call=call, store=store, weights=weights)
    return host_library(text, folder, "host_ptx", "-O0")


def _lane_words(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Words [32 lanes, bits] of the first tile."""
    parts, begin = [], 0
    for width in layout_cuda.PLANES[bits]:
        plane = packed[0, 0, begin : begin + 32 * width]
        runs = plane.view(2, 32, 4) if width == 8 else plane.view(1, 32, width)
        parts += list(runs)
        begin += 32 * width
    return torch.cat(parts, 1).contiguous()


def _tile(stored: DType, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [16, 64], every one of the type among them where there are so many, and what a
    fragment holds of them."""
    generator = torch.Generator().manual_seed(seed)
    bits = torch.randperm(1024, generator=generator).view(16, 64) % (1 << stored.bits)
    if stored.specials == "nan":
        bits = torch.where((bits & 0x7F) == 0x7F, bits ^ 1, bits)
    if stored.specials == "ieee":
        bits = torch.where((bits & 0x7C) == 0x7C, bits ^ 0x40, bits)
    center = 1 << (stored.bits - 1)
    if stored.kind == "int":
        return (bits - center).to(torch.int8), (bits - center).float()
    codes = bits.to(torch.uint8)
    return codes, bits.float() - center if stored.kind == "uint" else decode(codes, stored)


def _fragments(values: torch.Tensor) -> torch.Tensor:
    """[32 lanes, 4 steps, 4 registers, 2 halves] of a tile's values, as the PTX ISA has them."""
    # rows: i_row, g; columns: step, i_k, t, half
    split = values.view(2, 8, 4, 2, 4, 2).permute(1, 4, 2, 3, 0, 5)
    return split.reshape(32, 4, 4, 2)


@pytest.mark.parametrize(
    ("number", "way"), list(enumerate(_ways())), ids=list(map("-".join, _ways()))
)
def test_every_code_comes_out_exact(library, number, way):
    stored = QuantFormat.parse(way[0]).weight.dtype
    codes, values = _tile(stored, seed=number)
    words = _lane_words(layout_cuda.pack_codes(codes, stored.bits), stored.bits)
    out = torch.full((32, 4, 4, 2), float("nan"))
    pointer = ctypes.c_void_p
    getattr(library, f"f{number}")(pointer(words.data_ptr()), pointer(out.data_ptr()))
    assert torch.equal(out, _scaled(values, way) if way[2] == "scaled" else _fragments(values))


def _scaled(values: torch.Tensor, way: Way) -> torch.Tensor:
    """A tile's weights: rows g and g + 8 have a scale, and perhaps a zero point, each."""
    weight = QuantFormat.parse(way[0]).weight
    rows = torch.arange(16)[:, None] // 8
    if weight.zero_point:
        values = values + (1 << (weight.dtype.bits - 1)) - torch.tensor(ZEROS)[rows]
    return _fragments(values * torch.tensor(SCALES)[rows])
