"""What dequant/group_bytes.cuh makes of every code of 4 bits, run by a C++ compiler: bytes that are
the codes' values, or with a scale on, without a GPU."""

from __future__ import annotations

import ctypes

import pytest
import torch
from host_library import host_library

from humming.jit.cuda.source import INCLUDE_DIR
from humming.quantize import layout_cuda_a8
from humming.quantize.values import decode
from humming.spec.dtypes import dtype

TYPES = {
    "Int4AsE4m3": ("int4", torch.float8_e4m3fn),
    "Int4AsInt8": ("int4", torch.int8),
    "Fp4AsE4m3": ("fp4e2m1", torch.float8_e4m3fn),
    "ScaledFp4": ("fp4e2m1", torch.float8_e5m2),
}
TEXT = """
#include "humming/dequant/group_bytes.cuh"
using namespace humming;
"""
PLAIN = """
extern "C" void {name}(const u32* in, u32* out, const int*) {{
  for (int lane = 0; lane < 32; ++lane)
    for (int step = 0; step < 2; ++step) {{
      u32 words[4], a[4];
      for (int j = 0; j < 4; ++j) words[j] = in[lane * 4 + j];
      {call}
      for (int i = 0; i < 4; ++i) out[(lane * 2 + step) * 4 + i] = a[i];
    }}
}}
"""
CALLS = {
    "Int4AsE4m3": "Int4AsE4m3::fragment(a, words, step);",
    "Int4AsInt8": "Int4AsInt8::fragment(a, words, step);",
    "Fp4AsE4m3": "Fp4AsE4m3::fragment(a, words, step);",
    "raw": "Int4AsE4m3::raw(a, words, step);",
}
SCALED = """
extern "C" void of_scaled(const u32* in, u32* out, const int* exponents) {{
  for (int lane = 0; lane < 32; ++lane)
    for (int step = 0; step < 2; ++step) {{
      u32 words[4], a[4];
      for (int j = 0; j < 4; ++j) words[j] = in[lane * 4 + j];
      Words2 of[2];
      const u32 pair = u32(exponents[0]) << 7 | u32(exponents[1]) << 23;
      for (int half = 0; half < 2; ++half)
        of[half] = ScaledFp4::entry(ScaledFp4::place(1024, pair, half) % 1024 / 8);
      ScaledFp4::fragment(a, words, step, of);
      for (int i = 0; i < 4; ++i) out[(lane * 2 + step) * 4 + i] = a[i];
    }}
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("bytes")
    text = TEXT + SCALED.format()
    for name, call in CALLS.items():
        text += PLAIN.format(name=f"of_{name}", call=call)
    return host_library(text, folder, "host_block", "-O0")


def _run(function, codes: torch.Tensor, of: torch.dtype, exponents=(127, 127)) -> torch.Tensor:
    """Values [16, 64] of the fragments of a tile."""
    words = layout_cuda_a8.pack_codes(codes, 4)[0, 0].contiguous()
    out = torch.empty(32, 2, 4, 4, dtype=torch.uint8)
    numbers = (ctypes.c_int * 2)(*exponents)
    function(ctypes.c_void_p(words.data_ptr()), ctypes.c_void_p(out.data_ptr()), numbers)
    values = out.view(of).double().view(8, 4, 2, 2, 2, 4)  # g, t, step, ik, irow, byte
    return values.permute(4, 0, 2, 3, 1, 5).reshape(16, 64)


def _codes(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    bits = torch.randperm(1024, generator=generator).view(16, 64) % 16
    if name == "int4":
        return (bits - 8).to(torch.int8), (bits - 8).double()
    codes = bits.to(torch.uint8)
    return codes, decode(codes, dtype(name), torch.float64)


@pytest.mark.parametrize("name", ["Int4AsE4m3", "Int4AsInt8", "Fp4AsE4m3"])
def test_bytes_are_the_codes_times_a_power_of_two(library, name):
    stored, of = TYPES[name]
    codes, values = _codes(stored)
    lift = {"Int4AsE4m3": -9, "Int4AsInt8": 4, "Fp4AsE4m3": -6}[name]
    assert f"lift = {lift};" in (INCLUDE_DIR / "humming/dequant/group_bytes.cuh").read_text()
    assert torch.equal(_run(library[f"of_{name}"], codes, of), values * 2.0**lift)


def test_raw_codes_are_too_large_by_their_bias(library):
    codes, values = _codes("int4")
    bias = float(torch.tensor([0x88], dtype=torch.uint8).view(torch.float8_e4m3fn).double())
    raw = _run(library["of_raw"], codes, torch.float8_e4m3fn)
    assert torch.equal(raw + bias, values * 2.0**-9)


@pytest.mark.parametrize("below", [0, 1, 7, 14, 25, 26, 27, 60, 126])
def test_scales_are_exact_down_to_27_binades_below_a_rows_largest(library, below):
    codes, values = _codes("fp4e2m1")
    found = _run(library["of_scaled"], codes, torch.float8_e5m2, (127, 127 - below))
    rows = torch.tensor([1.0] * 8 + [2.0**-below] * 8, dtype=torch.float64)[:, None]
    wanted = values * rows * 2.0**13
    if below <= 26:
        assert torch.equal(found, wanted)
    else:  # rounded to what e5m2 has at its least, 2^-27 of the largest group
        assert torch.equal(found[:8], wanted[:8])
        assert float((found - wanted).abs().max()) <= 6 * 2.0 ** (13 - 27)
