"""The family blas: dequantized panels under torch's matmul, against float64, between canaries."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import case, code_paths, launch, problem_of

from humming.errors import LayoutError
from humming.jit.blas import BlasKernel
from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.jit.load import load
from humming.quantize import pack
from humming.reference import error_bound, matmul_float64
from humming.spec.config import BlasConfig
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

PATHS = code_paths("fp32")
FORMATS = ("int4g128", "uint4g64zf", "nvfp4", "uint3g40z", "fp8e4m3", "int8", "mxfp6e2m3")
CASES = [
    (format, PATHS[index % len(PATHS)], ("fp32", "bf16", "fp16")[index % 3], index % 2 == 1)
    for index, format in enumerate(FORMATS)
]


def blas(format: str, path: str, dtype: str, act_order: bool, panel_n: int = 32) -> BlasKernel:
    device, problem = cpu_device(), problem_of(dtype, format=format, act_order=act_order)
    loaded = load(compiled(BlasConfig(path, panel_n), problem, device), device)
    assert isinstance(loaded, BlasKernel)
    return loaded


@pytest.mark.parametrize(("format", "path", "dtype", "act_order"), CASES)
def test_error_is_within_the_bound(format, path, dtype, act_order):
    loaded = blas(format, path, dtype, act_order)
    for n, k in ((1, 8), (5, 40), (33, 100), (75, 416), (2880, 96)):
        operands = case(n, k, dtype, format, act_order)
        for m, bias in ((0, None), (1, operands.bias), (17, None), (17, operands.bias)):
            out = launch(loaded, operands.x[:m], operands.packed, bias, 1 + m % 3)
            answer = matmul_float64(operands.x[:m], operands.q, bias)
            bound = error_bound(operands.x[:m], operands.q, out.dtype, bias)
            assert bool(((out.double() - answer).abs() <= bound).all()), (n, k, m)


def test_x_may_want_a_gradient_and_the_workspace_may_be_left_out():
    loaded, operands = blas(*CASES[0]), case(33, 100, "fp32")
    out = torch.empty(17, 33)
    loaded.launch(operands.x.clone().requires_grad_(), operands.packed, None, out)
    assert torch.equal(out, launch(loaded, operands.x, operands.packed))
    with pytest.raises(LayoutError, match="x must be"):
        loaded.launch(operands.x.double(), operands.packed, None, out)


def test_it_is_for_cpus_floats_and_whole_panels():
    problem, device = Problem("int4g128", 64, 128, 64, "fp32", "fp32"), cpu_device()
    assert config_violations(BlasConfig("generic", 64), problem, device) == []

    def broken(config: BlasConfig, format: str = "int4g128") -> list[str]:
        other = Problem(format, 64, 128, 64, "fp32", "fp32")
        return [violation.rule for violation in config_violations(config, other, device)]

    assert broken(BlasConfig("generic", 24)) == ["blas_panel_n_multiple"]
    assert broken(BlasConfig("avx512_bf16", 64)) == ["blas_code_path"]
    assert broken(BlasConfig("generic", 64), "int8-int8") == ["blas_float_activations"]


def test_a_panel_wider_than_w_takes_no_more_room():
    loaded = blas(*CASES[0], panel_n=1024)
    operands = case(33, 100, "fp32")
    assert loaded.workspace_bytes(17, 33, 100) < 4 * 48 * (100 + 17) + 4 * 64
    answer = matmul_float64(operands.x, operands.q)
    out = launch(loaded, operands.x, pack(operands.q))
    assert bool(
        ((out.double() - answer).abs() <= error_bound(operands.x, operands.q, out.dtype)).all()
    )
