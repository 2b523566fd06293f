"""The defaults of products of bytes: legal for every m, and filling Hopper's multiprocessors."""

from __future__ import annotations

import pytest

from humming.dispatch.heuristics import heuristic, heuristic_intervals
from humming.spec.config import ScaledMmConfig, Wgmma8Config
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations, wgmma_deal
from humming.spec.problem import Problem
from tests.gpus import gpu

FORMATS = (
    "fp8e4m3-fp8e4m3",
    "int8-int8",
    "int4-fp8e4m3",
    "mxfp4-fp8e4m3",
    "fp8e4m3b128-fp8e4m3g128",
    "int4g128-fp8e4m3",
    "int4-int8",
)


@pytest.mark.parametrize("format", FORMATS)
def test_defaults_are_legal_and_without_gaps(format):
    for n, k in ((8192, 8192), (2112, 7168), (32768, 512), (24, 8), (1000, 1304)):
        problem = Problem(format, n, k, 0, layout=CUDA_A8_LAYOUT)
        spans = heuristic_intervals(problem, gpu((9, 0)))
        assert [low for low, _, _ in spans] == [0, *(high for _, high, _ in spans[:-1])]
        for low, high, config in spans:
            for m in {max(low, 1), min(high - 1, 1 << 20)}:
                if low <= m < high:
                    assert not config_violations(config, problem.at(m), gpu((9, 0)))


@pytest.mark.parametrize("format", FORMATS)
def test_few_rows_are_not_multiplied_as_many_and_blocks_fill_the_gpu(format):
    for n, k in ((8192, 8192), (4096, 14336), (28672, 4096)):
        for m in (1, 16, 64, 128, 256):
            problem = Problem(format, n, k, m, layout=CUDA_A8_LAYOUT)
            config = heuristic(problem, gpu((9, 0)))
            assert isinstance(config, Wgmma8Config)
            assert config.block_m <= max(16, 2 * m)
            dealt = wgmma_deal(config, m, n, k, 132)
            assert dealt.clusters >= 96


def test_many_rows_of_fp8_are_torchs():
    problem = Problem("fp8e4m3-fp8e4m3", 8192, 8192, 4096, layout=CUDA_A8_LAYOUT)
    assert isinstance(heuristic(problem, gpu((9, 0))), ScaledMmConfig)
    blocks = Problem("fp8e4m3b128-fp8e4m3g128", 8192, 8192, 4096, layout=CUDA_A8_LAYOUT)
    assert isinstance(heuristic(blocks, gpu((9, 0))), Wgmma8Config)
