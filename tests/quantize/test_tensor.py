"""Quantizing a weight: codes, scales, their errors, and what is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.errors import FormatError, LayoutError
from humming.quantize import QuantizedTensor, quantize

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def weight(n: int, k: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 20),
    k=st.integers(1, 300),
    dtype=st.sampled_from(DTYPES),
    magnitude=st.sampled_from([1e-7, 1e-3, 1.0, 1e3]),
)
def test_every_element_is_within_half_a_step(n, k, dtype, magnitude):
    w = (weight(n, k, seed=n * 1000 + k) * magnitude).to(dtype)
    q = quantize(w)
    assert q.shape == (n, k)
    assert q.scales.shape == (n, -(-k // 128))
    assert q.scales.dtype == dtype
    assert q.codes.dtype == torch.int8
    assert int(q.codes.min()) >= -8
    assert int(q.codes.max()) <= 7
    # Half a step, and what rounding the scale itself can add at 7 steps.
    step = q.scales.to(torch.float64).repeat_interleave(128, dim=1)[:, :k]
    slack = 0.5 + 7 * torch.finfo(dtype).eps
    assert bool(((q.dequantize() - w.to(torch.float64)).abs() <= slack * step).all())


def test_known_group():
    w = torch.zeros(1, 128)
    w[0, :4] = torch.tensor([7.0, -7.0, 2.5, 3.5])
    q = quantize(w)
    assert float(q.scales[0, 0]) == 1.0
    assert q.codes[0, :4].tolist() == [7, -7, 2, 4]  # ties to even


def test_all_zero_group_has_scale_one():
    w = weight(3, 256)
    w[1, 128:] = 0
    q = quantize(w)
    assert float(q.scales[1, 1]) == 1.0
    assert int(q.codes[1, 128:].abs().max()) == 0


def test_tiny_fp16_group_does_not_divide_by_zero():
    q = quantize(torch.full((1, 128), 6e-8, dtype=torch.float16))
    assert float(q.scales[0, 0]) > 0
    assert bool(torch.isfinite(q.dequantize()).all())


@pytest.mark.parametrize(
    "format, most",
    [("int8", 1.01), ("fp8e4m3t", 1.01), ("int8g128", 2), ("uint4g64z", 1.2), ("fp4e2m1g32", 1.2)],
)
@pytest.mark.parametrize("size", [1e-4, 1e-5, 3e-6, 1e-6])
def test_small_fp16_weights_are_met_as_their_values_in_fp32_are(format, most, size):
    w = (weight(16, 512) * size).half()
    assert quantize(w, format).error(w) <= most * quantize(w.float(), format).error(w)


def test_deterministic_and_independent_of_other_rows():
    w = weight(37, 384)
    whole, part = quantize(w), quantize(w[10:11])
    assert torch.equal(whole.codes[10:11], part.codes)
    assert torch.equal(whole.scales[10:11], part.scales)
    assert torch.equal(quantize(w).codes, whole.codes)


def test_error_is_relative_frobenius():
    w = weight(64, 512)
    q = quantize(w)
    expected = (q.dequantize() - w.double()).norm() / w.double().norm()
    assert q.error(w) == pytest.approx(float(expected))
    assert 0.05 < q.error(w) < 0.15
    assert quantize(torch.zeros(2, 128)).error(torch.zeros(2, 128)) == 0.0


def test_dequantize_honours_zero_points():
    codes = torch.tensor([[0, 15]], dtype=torch.uint8)
    q = QuantizedTensor("uint4g128z", codes, torch.tensor([[0.5]]), torch.tensor([[8]]))
    assert q.dequantize().tolist() == [[-4.0, 3.5]]
    assert q.dequantize(torch.float16).dtype == torch.float16
    moved = q.to("meta")
    assert moved.codes.is_meta
    assert moved.zero_points is not None
    assert moved.zero_points.is_meta


def test_unknown_formats_and_methods_are_refused():
    with pytest.raises(FormatError, match="a format is made of"):
        quantize(weight(1, 128), "nf4")
    with pytest.raises(FormatError, match="method must be absmax or mse, but got 'msa'"):
        quantize(weight(1, 128), method="msa")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_refused(value):
    w = weight(2, 128)
    w[1, 5] = value
    with pytest.raises(LayoutError, match="isfinite"):
        quantize(w)


@pytest.mark.parametrize(
    "w", [torch.zeros(3), torch.zeros(2, 4, dtype=torch.int32), torch.zeros(0, 128)]
)
def test_a_weight_of_another_shape_or_dtype_is_refused(w):
    with pytest.raises(LayoutError, match="a weight must be"):
        quantize(w)


def test_parts_that_do_not_fit_are_refused():
    codes, scales = torch.zeros(2, 256, dtype=torch.int8), torch.ones(2, 2)
    with pytest.raises(LayoutError, match="codes must be"):
        QuantizedTensor("int4g128", codes.int(), scales)
    with pytest.raises(LayoutError, match="scales of int4g128"):
        QuantizedTensor("int4g128", codes, scales[:, :1])
    with pytest.raises(LayoutError, match="scales of int4g128"):
        QuantizedTensor("int4g128", codes, scales.double())
    with pytest.raises(LayoutError, match="zero_points"):
        QuantizedTensor("int4g128", codes, scales, torch.zeros(2))
    with pytest.raises(LayoutError, match="zero_points"):
        QuantizedTensor("uint4g128z", codes.view(torch.uint8), scales)
    with pytest.raises(LayoutError, match="permutation must be int32"):
        QuantizedTensor("int4g128", codes, scales, permutation=torch.zeros(255, dtype=torch.int32))
    with pytest.raises(LayoutError, match="global_scales must be fp32"):
        QuantizedTensor("int4g128", codes, scales, global_scales=torch.ones(3))
