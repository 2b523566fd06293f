"""Every code path and mainloop against float64 of the dequantized weights, between canaries."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch, typed_code_paths

from humming.jit.load import TORCH_DTYPES
from humming.quantize import pack, quantize
from humming.reference import error_bound, matmul_float64

SHAPES = [(n, k) for n in (1, 5, 2880, 5001) for k in (64, 96, 2880)]
ROWS = (0, 1, 3, 17)


NAMES = ("stream", "stream-rows", "stream-split", "blocked")
TYPED = typed_code_paths("fp32", "bf16", "fp16")
EACH = [(*typed, name) for typed in TYPED for name in NAMES]
ALONE = {path for path, _ in TYPED if [one for one, _ in TYPED].count(path) == 1}
HALF = [
    each
    for number, each in enumerate(EACH)
    if each[0] in ALONE or (number + number // len(NAMES)) % 2 == 0
]
"""So that each mainloop meets each code path, and each type."""


@pytest.mark.parametrize(("code_path", "dtype", "name"), HALF)
def test_error_is_within_the_bound(code_path, dtype, name):
    check(code_path, dtype, name)


@pytest.mark.slow
@pytest.mark.parametrize(("code_path", "dtype", "name"), sorted({*EACH} - {*HALF}))
def test_error_is_within_the_bound_of_the_other_half(code_path, dtype, name):
    check(code_path, dtype, name)


def check(code_path: str, dtype: str, name: str) -> None:
    loaded = kernel(configs_of(code_path)[name], dtype)
    for n, k in SHAPES:
        operands = case(n, k, dtype)
        for m in ROWS:
            out = launch(loaded, operands.x[:m], operands.packed, operands.bias, 1 + m % 2)
            error = (out.double() - operands.answer[:m]).abs()
            assert bool((error <= operands.bound[:m]).all()), (n, k, m)


@pytest.mark.parametrize(("code_path", "dtype"), typed_code_paths("fp32", "bf16"))
@pytest.mark.parametrize("m", [2, 33, 300])
@pytest.mark.parametrize("name", ["stream-rows", "blocked"])
def test_many_rows(code_path, dtype, name, m):
    generator = torch.Generator().manual_seed(m)
    x, w = torch.randn(m, 416, generator=generator), torch.randn(75, 416, generator=generator)
    q, x = quantize(w), x.to(TORCH_DTYPES[dtype])
    for threads in (1, 3):
        loaded = kernel(configs_of(code_path)[name], dtype, "fp32")
        out = launch(loaded, x, pack(q), threads=threads)
        error = (out.double() - matmul_float64(x, q)).abs()
        assert bool((error <= error_bound(x, q, torch.float32)).all())


@pytest.mark.parametrize("name", ["stream", "stream-rows", "stream-split", "blocked"])
def test_same_bits_whatever_the_threads(code_path, name):
    operands, loaded = case(2880, 2880, "bf16"), kernel(configs_of(code_path)[name], "bf16")
    first = launch(loaded, operands.x, operands.packed, threads=1)
    for threads in (1, 2, 3, 7):
        again = launch(loaded, operands.x, operands.packed, threads=threads)
        assert torch.equal(first.view(torch.int16), again.view(torch.int16))


@pytest.mark.parametrize("name", ["stream", "stream-rows", "blocked"])
def test_nan_and_infinity_come_out_where_they_must(code_path, name):
    operands = case(5, 96, "bf16")
    x = operands.x.contiguous()
    x[1, 3], x[2, 95], x[4, 0] = float("nan"), float("inf"), float("-inf")
    out = launch(kernel(configs_of(code_path)[name], "bf16"), x, operands.packed)
    answer = matmul_float64(x, operands.q)
    assert torch.equal(out.isnan(), answer.isnan())
    assert torch.equal(out.isposinf(), answer.isposinf())
    assert torch.equal(out.isneginf(), answer.isneginf())
    assert int(answer.isfinite().sum()) == 14 * 5


@pytest.mark.parametrize("code_path", code_paths("fp16"))
def test_a_bias_of_another_dtype_or_none(code_path):
    operands, loaded = case(5, 96, "fp16"), kernel(configs_of(code_path)["stream"], "fp16")
    bias = operands.bias.half()
    whole = launch(loaded, operands.x, operands.packed, bias)
    assert torch.equal(whole, launch(loaded, operands.x, operands.packed, bias.float()))
    bare = launch(loaded, operands.x, operands.packed, None)
    answer = matmul_float64(operands.x, operands.q)
    bound = error_bound(operands.x, operands.q, torch.float16)
    assert bool(((bare.double() - answer).abs() <= bound).all())
