"""Small fp16 weights count in every CUDA family: their group scales may be subnormal, and fp16 may
not hold their row scales. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cuda_cases import PLAIN, problem
from gpu_cases import Errors, case_of, compile_problems, device, kernel_for, launch
from mma_cases import PLAIN_MMA
from wgmma_cases import PLAIN_WGMMA

from humming.quantize import quantize
from humming.spec.config import DequantizeConfig, KernelConfig
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

pytestmark = pytest.mark.gpu

FORMATS = ("int4g128", "int8g128", "uint4g64z", "fp4e2m1g32", "int3g32", "int8", "fp8e4m3t")
CONFIGS: tuple[KernelConfig, ...] = (
    PLAIN,
    replace(PLAIN, block_m=1, tiles_n=2),
    replace(PLAIN, warpgroup=1, num_stages=3),
    PLAIN_MMA,
    PLAIN_WGMMA,
    DequantizeConfig(8, 2, 0),
)
ROWS = 40


def _calls(format: str) -> list[tuple[KernelConfig, Problem]]:
    calls = [(c, problem("fp16", 264, 520, min(c.block_m, ROWS), format)) for c in CONFIGS]
    return [call for call in calls if not config_violations(*call, device())]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    compile_problems([call for format in FORMATS for call in _calls(format)])


@pytest.mark.parametrize("size", [1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("format", FORMATS)
def test_small_fp16_weights_are_multiplied_as_exactly_as_by_torch(format, size):
    calls = _calls(format)
    assert calls
    draw = torch.Generator("cuda").manual_seed(len(format))
    w = torch.randn(264, 520, generator=draw, device="cuda") * size
    q = quantize(w.half(), format)
    operands = case_of(q, "fp16", draw)
    for tensor in (operands.x, operands.product):
        tensor.mul_(1024)  # so that no output is subnormal
    for config, asked in calls:
        errors = Errors()
        for m in sorted({1, asked.m}):
            out = launch(kernel_for(config, asked), operands.x[:m], operands.packed)
            errors.add(out, operands, m, False)
        errors.check(f"{config} {asked}")
