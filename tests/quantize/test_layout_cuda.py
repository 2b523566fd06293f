"""The fragment map `cuda_n16k64`: where codes and scales lie, and that packing loses nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.errors import LayoutError
from humming.quantize import QuantizedTensor, layout_cuda, pack, quantize, unpack
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT, LAYOUTS, layout_for


def random_quantized(n: int, k: int, dtype: torch.dtype, seed: int = 0) -> QuantizedTensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8, generator=generator)
    return QuantizedTensor(
        "int4g128", codes, torch.rand(n, -(-k // 128), generator=generator).to(dtype)
    )


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 70),
    eights=st.integers(1, 60),
    dtype=st.sampled_from([torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**16),
)
def test_unpack_is_the_exact_inverse(n, eights, dtype, seed):
    q = random_quantized(n, 8 * eights, dtype, seed)
    back = unpack(pack(q, CUDA_LAYOUT))
    assert back.scales.dtype == dtype
    assert torch.equal(back.codes, q.codes)
    assert torch.equal(back.scales, q.scales)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), n=st.integers(1, 40), eights=st.integers(1, 40))
def test_each_code_and_scale_lies_where_a_fragment_of_m16n8k16_wants_it(data, n, eights):
    q = random_quantized(n, 8 * eights, torch.float16, seed=n)
    p = pack(q, CUDA_LAYOUT)
    row = data.draw(st.integers(0, n - 1))
    column = data.draw(st.integers(0, 8 * eights - 1))
    # The PTX ISA's A fragment: register i of lane 4g + t holds row g + 8 * (i % 2) and columns
    # 2t, 2t + 1, eight further for i >= 2.
    g, high_row = row % 8, row % 16 // 8
    step, in_step = column % 64 // 16, column % 16
    t, half, high_column = in_step % 8 // 2, in_step % 2, in_step // 8
    word = int(p.codes[row // 16, column // 64, 4 * (4 * g + t) + step]) & 0xFFFFFFFF
    register = high_row + 2 * high_column
    assert (word >> 4 * (register + 4 * half) & 0xF) - 8 == int(q.codes[row, column])
    assert p.scales[row // 16, column // 128, g, high_row] == q.scales[row, column // 128]


def _random_codes(n: int, k: int, bits: int, signed: bool, seed: int) -> torch.Tensor:
    low = -(1 << (bits - 1)) if signed else 0
    dtype = torch.int8 if signed else torch.uint8
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, low + (1 << bits), (n, k), dtype=dtype, generator=generator)


@pytest.mark.parametrize("bits", range(1, 9))
@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 70), k=st.integers(1, 400), signed=st.booleans())
def test_codes_of_every_width_come_back(bits, n, k, signed):
    codes = _random_codes(n, k, bits, signed, seed=n * 401 + k)
    packed = layout_cuda.pack_codes(codes, bits)
    assert packed.shape == (-(-n // 16), 2 * -(-k // 128), 32 * bits)
    assert packed.dtype == torch.int32
    assert packed.nbytes == 128 * bits * packed.shape[0] * packed.shape[1]
    assert torch.equal(layout_cuda.unpack_codes(packed, n, k, bits, signed), codes)


@pytest.mark.parametrize("bits", range(1, 9))
@settings(max_examples=40, deadline=None)
@given(data=st.data(), n=st.integers(1, 40), k=st.integers(1, 300), signed=st.booleans())
def test_each_plane_has_its_bits_where_a_fragment_wants_them(bits, data, n, k, signed):
    codes = _random_codes(n, k, bits, signed, seed=n)
    packed = layout_cuda.pack_codes(codes, bits)
    row, column = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, k - 1))
    step, t, half = column % 64 // 16, column % 8 // 2, column % 2
    register = row % 16 // 8 + 2 * (column % 16 // 8)
    lane, field = 4 * (row % 8) + t, 4 * step + register
    stored, first = 0, 0
    for width in layout_cuda.PLANES[bits]:
        word = field * width // 16
        place = lane * width + word if width < 8 else word // 4 * 128 + lane * 4 + word % 4
        found = int(packed[row // 16, column // 64, first + place])
        bit = field * width % 16
        if width == 1:
            bit = 8 * (step % 2) + 4 * (register // 2) + 2 * (step // 2) + register % 2
        stored = stored << width | found >> (16 * half + bit) & ((1 << width) - 1)
        first += 32 * width
    assert stored == int(codes[row, column]) + ((1 << (bits - 1)) if signed else 0)


def test_a_large_weight_is_packed_in_parts(monkeypatch):
    codes = _random_codes(100, 300, 5, True, seed=1)
    whole = layout_cuda.pack_codes(codes, 5)
    monkeypatch.setattr(layout_cuda, "_ELEMENTS_AT_ONCE", 16 * 384 * 2)
    assert torch.equal(layout_cuda.pack_codes(codes, 5), whole)
    assert torch.equal(layout_cuda.unpack_codes(whole, 100, 300, 5), codes)


def test_shapes_and_padding():
    p = pack(random_quantized(17, 136, torch.bfloat16), CUDA_LAYOUT)
    assert (p.n, p.k, p.layout, p.scale_dtype) == (17, 136, CUDA_LAYOUT, torch.bfloat16)
    assert p.codes.shape == (2, 4, 128)
    assert p.codes.dtype == torch.int32
    assert p.scales.shape == (2, 2, 8, 2)
    assert p.scales.dtype == torch.bfloat16
    assert p.codes.is_contiguous() and p.scales.is_contiguous()
    assert bool((p.codes[:, 3] == -0x77777778).all())  # 0x88888888: code 0 past k
    assert float(p.scales[1, :, 1:].abs().max()) == 0
    assert p.nbytes == 2 * 4 * 512 + 2 * 2 * 32


def test_packing_works_without_data():
    q = random_quantized(5, 64, torch.float16).to("meta")
    assert pack(q, CUDA_LAYOUT).codes.shape == (1, 2, 128)
    assert unpack(pack(q, CUDA_LAYOUT)).codes.shape == (5, 64)


@pytest.mark.parametrize("k", [4, 12, 100])
def test_any_k_is_padded_to_128(k):
    q = quantize(torch.ones(2, k, dtype=torch.float16))
    assert pack(q, CUDA_LAYOUT).codes.shape == (1, 2, 128)
    assert torch.equal(unpack(pack(q, CUDA_LAYOUT)).codes, q.codes)


def test_scales_have_the_activations_type():
    with pytest.raises(LayoutError, match=r"bf16 or fp16 scales.*got torch.float32; convert"):
        pack(random_quantized(2, 128, torch.float32), CUDA_LAYOUT)


def test_each_kind_of_device_has_its_layout():
    gpu = Device("cuda", "a GPU", "sm90", 1, compute_capability=(9, 0))
    assert layout_for(gpu, "int4g128") == CUDA_LAYOUT
    assert layout_for(Device("cpu", "a CPU", "x86_64", 1), "int4g128") == "cpu_n16k8"
    assert layout_for(gpu, "int3g128") == CUDA_LAYOUT
    assert all(name == layout.name for name, layout in LAYOUTS.items())
