"""Every weight format against float64 of the dequantized weights, over shapes that fit nothing."""

from __future__ import annotations

import platform
from itertools import product

import pytest
import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch, problem_of

from humming.jit.compiler import compile_source, find_compiler
from humming.jit.detect import cpu_device
from humming.jit.source import render
from humming.quantize import QuantizedTensor, pack, quantize
from humming.quantize.activations import quantize_activations
from humming.quantize.values import value_table
from humming.reference import error_bound, matmul_float64
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.dtypes import dtype as dtype_of
from humming.spec.formats import QuantFormat
from humming.spec.legality import takes

SHAPES = [*product((1, 5, 33), (8, 40, 64, 96, 100)), (2880, 100), (33, 2880)]
ROWS = (0, 1, 3, 17)
NAMES = ("stream", "stream-rows", "stream-split", "blocked")
DTYPES = ("bf16", "fp16", "fp32")
SERVED_MOST = ("int8", "uint4g128z", "fp8e4m3", "nvfp4", "int4-int8")
OTHERS = (
    *("int1g32", "int2", "int3g64", "int4", "int4g20", "int5g24", "int6g16", "int7g8", "int8g128"),
    *("uint1g64z", "uint2g32zf", "uint3g40z", "uint4g64zf", "uint5zf", "uint6g128z", "uint8z"),
    *("fp3e1m1g8", "fp5e2m2g16", "fp6e3m2", "fp7e3m3g96", "fp8e4m3t", "fp8e4m3b128", "fp8e5m2"),
    *("fp8e3m4g64", "fp8e6m1", "fp8e7m0", "mxfp4", "mxfp6e2m3", "mxint8"),
    *("int4g128-int8", "int8-int8", "int8g40-int8"),
)
"""Formats of every width, kind of zero point, and way in which groups meet steps of 32 columns."""

Key = tuple[str, str, str, str, bool]


def cover(formats: tuple[str, ...], paths_of_each: int) -> list[Key]:
    """(format, code path, config, activation, act-order): each format on some code paths, the rest
    in turn."""
    found: list[Key] = []
    for index, format in enumerate(formats):
        paths = code_paths("bf16", format)
        for turn in range(paths_of_each):
            path = paths[(index + turn) % len(paths)]
            count = len(found)
            dtypes = [d for d in DTYPES if path in code_paths(d, format)]
            dtype = "fp32" if _overflows_fp16(format) else dtypes[count % len(dtypes)]
            if path not in code_paths(dtype, format):
                dtype = "bf16"
            found.append((format, path, NAMES[count % 4], dtype, count % 5 < 2))
    return found


def _overflows_fp16(format: str) -> bool:
    return QuantFormat.parse(format).weight.dtype.exponent_bits > 5


FEW = cover(SERVED_MOST, 2) + cover(OTHERS, 1)
ALL = [
    (format, path, name, dtype, act_order)
    for format in SERVED_MOST + OTHERS
    for dtype in DTYPES
    if not (dtype == "fp16" and _overflows_fp16(format))
    for path in code_paths(dtype, format)
    for name, act_order in zip(NAMES, (True, False, False, True), strict=True)
]


def check(key: Key, shapes: list[tuple[int, int]]) -> None:
    format, path, name, dtype, act_order = key
    loaded = kernel(configs_of(path)[name], dtype, None, format, act_order)
    for n, k in shapes:
        operands = case(n, k, dtype, format, act_order)
        for m in ROWS:
            out = launch(loaded, operands.x[:m], operands.packed, operands.bias, 1 + m % 2)
            error = (out.double() - operands.answer[:m]).abs()
            assert bool((error <= operands.bound[:m]).all()), (n, k, m)


@pytest.mark.parametrize("key", FEW, ids=lambda key: "-".join(map(str, key)))
def test_error_is_within_the_bound(key):
    check(key, SHAPES)


@pytest.mark.slow
@pytest.mark.parametrize("key", ALL, ids=lambda key: "-".join(map(str, key)))
def test_error_is_within_the_bound_everywhere(key):
    check(key, [*SHAPES, (2880, 2880)])


FLOATS = ("fp8e4m3", "fp8e5m2", "fp8e3m4", "fp8e7m0", "fp6e2m3", "fp5e2m2", "fp4e2m1", "fp3e1m1")


CODES = (*FLOATS, "int8", "int7", "int5", "int3", "int2", "int1")


@pytest.mark.parametrize("format", CODES)
def test_every_code_of_a_type_is_its_value(format):
    paths = code_paths("bf16", format)
    check_codes(format, [paths[CODES.index(format) % len(paths)]])


@pytest.mark.slow
@pytest.mark.parametrize("format", CODES)
def test_every_code_of_a_type_is_its_value_on_every_code_path(format):
    check_codes(format, code_paths("bf16", format))


def check_codes(format: str, paths: list[str]) -> None:
    table = torch.tensor(value_table(dtype_of(format)))
    codes = torch.arange(len(table)).to(torch.uint8)
    if format.startswith("int"):
        codes = table.to(torch.int8)
    finite = table.isfinite()
    q = QuantizedTensor(format, codes[:, None].repeat(1, 32), torch.ones(len(table), 1))
    whole = QuantizedTensor(format, q.codes[finite], q.scales[finite])
    for path in paths:
        loaded = kernel(configs_of(path)["stream-rows"], "bf16", "fp32", format)
        out = launch(loaded, torch.eye(32).bfloat16(), pack(whole))
        assert torch.equal(out, table[finite].expand(32, -1))
        x = torch.ones(1, 1).bfloat16()
        alone = QuantizedTensor(format, q.codes[:, :1].contiguous(), q.scales)
        assert torch.equal(launch(loaded, x, pack(alone)).isnan(), table.isnan()[None])
        assert torch.equal(launch(loaded, x, pack(alone)).isinf(), table.isinf()[None])


@pytest.mark.parametrize("format", ["int8-int8", "int4-int8"])
def test_quantized_activations_are_the_same_whole_numbers_on_every_code_path(format):
    operands = case(33, 416, "fp32", format)
    codes, scales = quantize_activations(operands.x, QuantFormat.parse(format).activation)
    sums = codes.to(torch.int64) @ operands.q.codes.to(torch.int64).T
    assert bool((scales < 1).all())  # so that they come before those of rows
    expected = sums.to(torch.float32) * scales * operands.packed.row_scales[:33]
    assert int(sums.abs().max()) < 2**24
    for path in code_paths("fp32", format):
        loaded = kernel(configs_of(path)["stream"], "fp32", None, format)
        assert torch.equal(launch(loaded, operands.x, operands.packed), expected), path


@pytest.mark.parametrize(("of_x", "of_w"), [(1e-5, 1e36), (1e36, 1e-5), (2.0**-125, 1e30)])
def test_scales_of_rows_and_tokens_far_apart_lose_no_finite_product(of_x, of_w):
    generator = torch.Generator().manual_seed(5)
    w = torch.randn(33, 416, generator=generator) * of_w
    x = torch.randn(6, 416, generator=generator) * of_x
    q = quantize(w, "int8-int8")
    answer, bound = matmul_float64(x, q), error_bound(x, q, torch.float32)
    for path in code_paths("fp32", "int8-int8"):
        for name in NAMES:
            loaded = kernel(configs_of(path)[name], "fp32", None, "int8-int8")
            out = launch(loaded, x, pack(q))
            assert bool(((out.double() - answer).abs() <= bound).all()), (path, name)


def test_a_row_that_cannot_be_quantized_is_nan_and_leaves_the_others_alone():
    operands = case(33, 416, "fp32", "int8-int8")
    loaded = kernel(
        configs_of(code_paths("fp32", "int8-int8")[-1])["stream"], "fp32", None, "int8-int8"
    )
    x = operands.x.clone()
    before = launch(loaded, x, operands.packed)
    x[1, 3], x[2, 100], x[4] = float("nan"), float("-inf"), 0
    out = launch(loaded, x, operands.packed)
    assert bool(out[[1, 2]].isnan().all())
    assert bool((out[4] == 0).all())
    rest = [row for row in range(len(x)) if row not in (1, 2, 4)]
    assert torch.equal(out[rest], before[rest])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code paths are those of x86-64")
def test_code_paths_that_this_cpu_lacks_compile():
    device = cpu_device()
    for path in CODE_PATH_FLAGS:
        if device.supports(path):
            continue
        problem = problem_of("bf16", format="int4g128")
        if not takes(path, problem):
            problem = problem_of("bf16", format="int4-int8")
        library = compile_source(render(configs_of(path)["stream"], problem), find_compiler())
        assert library[:4] == b"\x7fELF"
