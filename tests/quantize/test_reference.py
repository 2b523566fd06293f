"""The oracle itself: against a plain sum, and its bound against kernels known right and wrong."""

from __future__ import annotations

import math

import pytest
import torch

from humming.errors import LayoutError
from humming.quantize import quantize
from humming.reference import error_bound, half_ulp, matmul_float64


def operands(m: int = 3, n: int = 7, k: int = 160, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(m, k, generator=generator).to(dtype)
    return x, quantize(torch.randn(n, k, generator=generator))


def test_equals_a_plain_sum():
    x, q = operands()
    bias = torch.arange(7.0)
    out = matmul_float64(x, q, bias)
    w = q.dequantize().tolist()
    for i in range(3):
        for j in range(7):
            terms = (float(x[i, c]) * w[j][c] for c in range(160))
            assert float(out[i, j]) == pytest.approx(math.fsum(terms) + j, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_right_answer_is_within_the_bound_and_a_wrong_one_is_not(dtype):
    x, q = operands(dtype=dtype)
    out, bound = matmul_float64(x, q), error_bound(x, q, dtype)
    right = x.float() @ q.dequantize(torch.float32).T
    assert bool(((right.to(dtype).double() - out).abs() <= bound).all())
    dropped = matmul_float64(torch.cat([x[:, :-1], 0 * x[:, -1:]], dim=1), q)
    assert bool(((dropped - out).abs() > bound).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_ulp_is_half_the_gap_to_the_next_number(dtype):
    for value in (1.0, 1.5, 0.75, 3.0, 2.0**-13, 6.0e4, 0.0, 2.0**-24):
        near = torch.tensor(value, dtype=dtype)
        after = torch.nextafter(near, torch.tensor(math.inf, dtype=dtype))
        gap = float(after.double() - near.double())
        assert float(half_ulp(near.double(), dtype)) == gap / 2


def test_half_ulp_is_infinite_where_rounding_overflows():
    assert float(half_ulp(torch.tensor(65519.0).double(), torch.float16)) == 16.0
    assert float(half_ulp(torch.tensor(65520.0).double(), torch.float16)) == math.inf


def test_shapes_that_do_not_fit_are_refused():
    x, q = operands()
    with pytest.raises(LayoutError, match=r"`x\.shape == "):
        matmul_float64(x[:, :-1], q)
