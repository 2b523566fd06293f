"""Numbers too small for an instruction that flushes denormals still count, on every code path."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch

from humming.quantize import QuantizedTensor, pack
from humming.reference import error_bound, matmul_float64

LEAST_SAFE = 2.0**-119
"""From here on no sum of products of bf16 numbers and codes is denormal in fp32."""


def weight(n: int, k: int) -> QuantizedTensor:
    generator = torch.Generator().manual_seed(n + k)
    codes = torch.randint(-8, 8, (n, k), generator=generator, dtype=torch.int8)
    scales = torch.exp2(torch.randint(-3, 4, (n, -(-k // 128)), generator=generator).float())
    return QuantizedTensor("int4g128", codes, scales)


def check(code_path: str, name: str, x: torch.Tensor, output: str = "bf16") -> torch.Tensor:
    q = weight(37, x.shape[1])
    out = launch(kernel(configs_of(code_path)[name], "bf16", output), x, pack(q), threads=2)
    assert bool(((out.double() - matmul_float64(x, q)).abs() <= error_bound(x, q, out.dtype)).all())
    return out


@pytest.mark.parametrize("output", ["bf16", "fp32"])
@pytest.mark.parametrize("name", ["stream", "stream-rows", "stream-split", "blocked"])
def test_rows_of_tiny_numbers(code_path, name, output):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(9, 416, generator=generator)
    scale = torch.tensor([2.0**e for e in (-133, -130, -127, -126, -125, -119, -118, -100, 0)])
    out = check(code_path, name, (x * scale[:, None]).bfloat16(), output)
    assert bool((out != 0).any(dim=1).all())


FORMATS = {"fp8e5m2": 2.0**-16, "nvfp4": 0.5, "uint4g40z": 1.0, "int6": 1.0, "fp8e7m0": 2.0**-62}
"""Format -> the number that the values of all its codes are multiples of."""


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_tiny_numbers_under_every_kind_of_weight(format):
    operands = case(33, 100, "bf16", format, act_order=True)
    safe = LEAST_SAFE / FORMATS[format]
    scale = torch.tensor([2.0**-133, 2.0**-127, safe / 64, safe / 2, safe, safe * 2, 1.0])
    x = (operands.x[:7] * scale[:, None]).bfloat16()
    path = code_paths("bf16", format)[-1]
    loaded = kernel(configs_of(path)["stream-rows"], "bf16", None, format, act_order=True)
    out = launch(loaded, x, operands.packed, threads=2)
    error = (out.double() - matmul_float64(x, operands.q)).abs()
    assert bool((error <= error_bound(x, operands.q, out.dtype)).all())


@pytest.mark.parametrize("name", ["stream-rows", "blocked"])
def test_sums_that_cancel_to_a_denormal(code_path, name):
    step = 1 + 2.0**-7  # the bf16 number after 1
    x = torch.zeros(5, 64)
    x[:, 0] = x[:, 36] = 1.0
    for row, exponent in enumerate((-126, -122, -120, -119, -118)):
        x[row] *= 2.0**exponent
        x[row, 1], x[row, 40] = -step * 2.0**exponent, step * 2.0**exponent
    check(code_path, name, x.bfloat16())


@pytest.mark.parametrize("name", ["stream-rows", "blocked"])
def test_one_tiny_number_beside_large_ones_infinity_and_nan(code_path, name):
    x = torch.ones(6, 96)
    x[1, 95] = x[3, 0] = x[4, 0] = 2.0**-133
    x[2, 5], x[3, 7], x[4, 50] = LEAST_SAFE, float("inf"), float("nan")
    x = x.bfloat16()
    q = weight(37, 96)
    out = launch(kernel(configs_of(code_path)[name], "bf16"), x, pack(q))
    answer, bound = matmul_float64(x, q), error_bound(x, q, torch.bfloat16)
    finite = answer.isfinite()
    assert bool(((out.double() - answer).abs() <= bound)[finite].all())
    assert torch.equal(out.isnan(), answer.isnan())
    assert torch.equal(out.isposinf(), answer.isposinf())
    assert int(finite.sum()) == 4 * 37
