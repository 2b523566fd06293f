"""The fragment map `cuda_n16k64_a8`: where codes and scales lie, that packing loses nothing, and
which formats and GPUs take it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.errors import LayoutError
from humming.quantize import layout_cuda_a8, pack, quantize, unpack
from humming.spec.carriers import CARRIERS, carrier, native
from humming.spec.combinations import why_not
from humming.spec.device import Device
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat
from humming.spec.layouts import (
    CUDA_A8_LAYOUT,
    CUDA_LAYOUT,
    layout_for,
    packed_group_size,
    packed_groups,
)

BITS = range(1, 9)
NATIVE = {
    "int8-int8": "int8",
    "int4g128-int8": "int8",
    "uint4g128z-int8": "int8",
    "int4-int4": "int8",
    "mxint8-int8": "int8",
    "int4-fp8e4m3": "fp8e4m3",
    "mxfp4-fp8e4m3": "fp8e4m3",
    "fp8e4m3b128-fp8e4m3g128": "fp8e4m3",
    "mxfp4-mxfp4": "fp8e4m3",
    "fp6e3m2-fp8e4m3": "fp8e4m3",
    "fp8e5m2-fp8e5m2": "fp8e5m2",
}
ROUNDED = ["int4g128", "nvfp4-nvfp4", "nvfp4-fp8e4m3", "uint8g128z-int8", "int4g16-int8"]


def random_codes(n: int, k: int, bits: int, signed: bool, seed: int) -> torch.Tensor:
    low = -(1 << (bits - 1)) if signed else 0
    dtype = torch.int8 if signed else torch.uint8
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, low + (1 << bits), (n, k), dtype=dtype, generator=generator)


@pytest.mark.parametrize("bits", BITS)
@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 70), k=st.integers(1, 400), signed=st.booleans())
def test_codes_of_every_width_come_back(bits, n, k, signed):
    codes = random_codes(n, k, bits, signed, seed=n * 401 + k)
    packed = layout_cuda_a8.pack_codes(codes, bits)
    assert tuple(packed.shape) == layout_cuda_a8.codes_shape(n, k, bits)
    assert torch.equal(layout_cuda_a8.unpack_codes(packed, n, k, bits, signed), codes)


@pytest.mark.parametrize("bits", range(1, 8))
@settings(max_examples=40, deadline=None)
@given(data=st.data(), n=st.integers(1, 40), k=st.integers(1, 300), signed=st.booleans())
def test_each_plane_has_its_bits_where_a_fragment_of_m16n8k32_wants_them(bits, data, n, k, signed):
    codes = random_codes(n, k, bits, signed, seed=n)
    packed = layout_cuda_a8.pack_codes(codes, bits)
    row, column = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, k - 1))
    # The PTX ISA's A fragment: byte j of register i of lane 4g + t is row g + 8 * (i % 2), column
    # 4t + j, 16 further for i >= 2.
    step, high_column, t, j = column % 64 // 32, column % 32 // 16, column % 16 // 4, column % 4
    lane, e = 4 * (row % 8) + t, 4 * step + 2 * (row % 16 // 8) + high_column
    stored, first = 0, 0
    for width in layout_cuda_a8.PLANES[bits]:
        place = first + lane * width + e * width // 8
        word = int(packed[row // 16, column // 64, place]) & 0xFFFFFFFF
        stored = stored << width | word >> (8 * j + e * width % 8) & ((1 << width) - 1)
        first += 32 * width
    assert stored == int(codes[row, column]) + ((1 << (bits - 1)) if signed else 0)


def test_codes_of_8_bits_lie_as_rows_that_torch_multiplies():
    q = quantize(torch.randn(21, 200), "fp8e4m3-fp8e4m3")
    p = pack(q, CUDA_A8_LAYOUT)
    rows = p.codes.view(torch.float8_e4m3fn)
    assert rows.shape == (32, 256)
    assert torch.equal(rows[:21, :200].view(torch.uint8), q.codes)
    assert not rows[21:].view(torch.uint8).any()
    assert not rows[:, 200:].view(torch.uint8).any()


def test_a_large_weight_is_packed_in_parts(monkeypatch):
    codes = random_codes(100, 300, 5, True, seed=1)
    whole = layout_cuda_a8.pack_codes(codes, 5)
    monkeypatch.setattr(layout_cuda_a8, "_ELEMENTS_AT_ONCE", 16 * 384 * 2)
    assert torch.equal(layout_cuda_a8.pack_codes(codes, 5), whole)
    assert torch.equal(layout_cuda_a8.unpack_codes(whole, 100, 300, 5), codes)


@settings(max_examples=10, deadline=None)
@given(n=st.integers(1, 200), k=st.integers(1, 300), size=st.sampled_from([32, 48, 128]))
def test_the_scale_of_a_block_stands_once_a_row_tile(n, k, size):
    q = quantize(torch.randn(n, k), f"fp8e4m3b{size}-fp8e4m3g{size}")
    p = pack(q, CUDA_A8_LAYOUT)
    groups = packed_groups(CUDA_A8_LAYOUT, q.weight_format, k)
    assert p.scales.dtype == torch.float32
    assert p.scales.shape == (-(-n // 16), groups)
    repeats = size // packed_group_size(CUDA_A8_LAYOUT, q.weight_format, k)
    wide = q.scales.repeat_interleave(size // 16, 0)[: -(-n // 16)].repeat_interleave(repeats, 1)
    assert torch.equal(p.scales[:, : wide.shape[1]], wide[:, :groups].to(torch.float32))
    back = unpack(p)
    assert torch.equal(back.scales, q.scales)
    assert torch.equal(back.codes, q.codes)


@pytest.mark.parametrize("format", sorted(NATIVE))
def test_what_tensor_cores_multiply_in_8_bits_is_packed_for_them(format):
    assert carrier(format) == NATIVE[format]
    for capability in ((7, 5), (8, 0), (8, 9), (9, 0), (12, 0)):
        gpu = Device("cuda", "a GPU", "sm", 1, compute_capability=capability)
        wanted = CUDA_A8_LAYOUT if capability >= CARRIERS[NATIVE[format]] else CUDA_LAYOUT
        assert layout_for(gpu, format) == wanted
        assert native(format, capability) == (wanted == CUDA_A8_LAYOUT)


@pytest.mark.parametrize("format", ROUNDED)
def test_what_they_cannot_multiply_is_packed_for_16_bits(format):
    assert carrier(format) is None
    gpu = Device("cuda", "a GPU", "sm90", 1, compute_capability=(9, 0))
    assert layout_for(gpu, format) == CUDA_LAYOUT


ONE_OPERAND = [
    "int2",
    "int4",
    "int8",
    "uint4g64z",
    "fp8e4m3",
    "fp8e5m2",
    "fp6e2m3",
    "fp4e2m1",
    "fp5e3m1",
]


@pytest.mark.parametrize("weight", ONE_OPERAND)
@pytest.mark.parametrize("activation", ["int8", "int4", "fp8e4m3", "fp8e5m2", "fp4e2m1g32"])
def test_a_carrier_has_every_value_of_both(weight, activation):
    format = f"{weight}-{activation}"
    held = carrier(format)
    if why_not(format) or held is None:
        return
    of = dtype(held)
    for stored in (QuantFormat.parse(format).weight.dtype, dtype(activation.split("g")[0])):
        if not stored.is_integer:
            assert stored.exponent_bits <= of.exponent_bits
            assert stored.mantissa_bits <= of.mantissa_bits
        elif of.is_integer:
            assert stored.bits <= 8
        else:
            assert max(map(abs, stored.integer_range)) <= 1 << (of.mantissa_bits + 1)


def test_powers_of_two_are_packed_by_the_largest_of_a_row():
    q = quantize(torch.randn(20, 256) * torch.logspace(-20, 20, 20)[:, None], "mxfp4-fp8e4m3")
    p = pack(q, CUDA_A8_LAYOUT)
    assert p.row_scales is not None
    assert torch.equal(p.row_scales[:20], q.scales.to(torch.float32).amax(1))
    assert float(p.scales.max()) == 1
    assert torch.equal(unpack(p).scales.view(torch.uint8), q.scales.view(torch.uint8))
    far = torch.tensor([[2.0**-100, 2.0**100]]).to(torch.float8_e8m0fnu)
    with pytest.raises(LayoutError, match="within 2"):
        pack(replace(q.slice_rows(0, 1).slice_columns(0, 64), scales=far), CUDA_A8_LAYOUT)
