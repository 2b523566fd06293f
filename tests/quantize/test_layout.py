"""The fragment map `cpu_n16k8`: where each nibble lies, and that packing loses nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.errors import LayoutError
from humming.quantize import PackedWeight, QuantizedTensor, pack, quantize, unpack


def random_quantized(n: int, k: int, dtype: torch.dtype, seed: int = 0) -> QuantizedTensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8, generator=generator)
    return QuantizedTensor(
        "int4g128", codes, torch.rand(n, -(-k // 128), generator=generator).to(dtype)
    )


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 70),
    steps=st.integers(1, 20),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    seed=st.integers(0, 2**16),
)
def test_unpack_is_the_exact_inverse(n, steps, dtype, seed):
    q = random_quantized(n, 32 * steps, dtype, seed)
    back = unpack(pack(q))
    assert back.format == q.format
    assert back.scales.dtype == dtype
    assert torch.equal(back.codes, q.codes)
    assert torch.equal(back.scales, q.scales)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), n=st.integers(1, 40), steps=st.integers(1, 12))
def test_each_nibble_lies_where_the_map_says(data, n, steps):
    q = random_quantized(n, 32 * steps, torch.float32, seed=n)
    p = pack(q)
    row = data.draw(st.integers(0, n - 1))
    column = data.draw(st.integers(0, 32 * steps - 1))
    word = int(p.codes[row // 16, column // 32, column % 32 // 8, row % 16]) & 0xFFFFFFFF
    nibble = word >> (4 * (column % 8)) & 0xF
    assert nibble - 16 * (nibble >= 8) == int(q.codes[row, column])
    assert float(p.scales[row // 16, column // 128, row % 16]) == float(
        q.scales[row, column // 128]
    )


def test_shapes_and_padding():
    p = pack(random_quantized(17, 96, torch.bfloat16))
    assert (p.n, p.k, p.layout, p.scale_dtype) == (17, 96, "cpu_n16k8", torch.bfloat16)
    assert p.codes.shape == (2, 3, 4, 16)
    assert p.codes.dtype == torch.int32
    assert p.scales.shape == (2, 1, 16)
    assert p.scales.dtype == torch.float32
    assert p.codes.is_contiguous()
    assert p.scales.is_contiguous()
    assert int(p.codes[1, :, :, 1:].abs().max()) == 0
    assert float(p.scales[1, :, 1:].abs().max()) == 0
    assert p.nbytes == 2 * 12 * 16 * 4 + 2 * 16 * 4


def test_packing_works_without_data():
    q = random_quantized(5, 64, torch.float16).to("meta")
    assert pack(q).codes.shape == (1, 2, 4, 16)
    assert unpack(pack(q)).codes.shape == (5, 64)
    assert pack(random_quantized(5, 64, torch.float16)).to("meta").scales.is_meta


@pytest.mark.parametrize("k", [4, 33, 100])
def test_columns_past_k_have_code_0(k):
    p = pack(quantize(torch.ones(2, k)))
    assert p.codes.shape == (1, -(-k // 32), 4, 16)
    whole = unpack(
        PackedWeight(p.format, 2, -(-k // 32) * 32, p.layout, p.codes, p.scales, p.scale_dtype)
    )
    assert int(whole.codes[:, k:].abs().max()) == 0


def test_what_the_layout_cannot_hold_is_refused():
    q = random_quantized(2, 128, torch.float32)
    with pytest.raises(LayoutError, match="layout must be one of"):
        pack(q, "cpu_n16k4")
    with pytest.raises(LayoutError, match="groups and blocks of a multiple of 8, but got"):
        pack(QuantizedTensor("int4g4", q.codes, q.scales.expand(2, 32)), "cuda_n16k64")
