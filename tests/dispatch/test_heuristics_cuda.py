"""The heuristic of GPUs: legal wherever a CUDA family serves, and near what was measured."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.dispatch.heuristics import heuristic, heuristic_intervals
from humming.dispatch.heuristics_mma import mma_default
from humming.spec.config import SkinnyConfig, WgmmaConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations, families_for, wgmma_deal
from humming.spec.problem import M_END, Problem
from tests.gpus import CAPABILITIES, gpu

GPUS = st.builds(gpu, st.sampled_from(CAPABILITIES), st.integers(1, 300), st.booleans())
PROBLEMS = st.builds(
    Problem,
    format=st.just("int4g128"),
    n=st.one_of(st.integers(1, 300), st.integers(1, 2**18), st.integers(1, 2**31 - 1)),
    k=st.one_of(st.integers(1, 64), st.integers(1, 2**16)).map(lambda eights: 8 * eights),
    m=st.one_of(st.integers(0, 80), st.integers(0, M_END - 1)),
    activation_dtype=st.just("fp16"),
    output_dtype=st.just("fp16"),
    layout=st.just(CUDA_LAYOUT),
    bias=st.booleans(),
)


@settings(deadline=None)
@given(PROBLEMS, GPUS)
def test_the_heuristic_is_always_legal(problem, device):
    assert families_for(problem, device)[:3] == ["skinny", "dequantize", "mma"]
    assert config_violations(heuristic(problem, device), problem, device) == []


@settings(deadline=None)
@given(PROBLEMS, GPUS)
def test_intervals_cover_every_m_and_agree_with_the_heuristic(problem, device):
    intervals = heuristic_intervals(problem, device)
    assert intervals[0][0] == 0
    assert intervals[-1][1] == M_END
    for left, right in pairwise(intervals):
        assert left[1] == right[0]
        assert left[2] != right[2]
    owner = [config for low, high, config in intervals if low <= problem.m < high]
    assert owner == [heuristic(problem, device)]


@pytest.mark.parametrize("m", [1, 2, 8, 16, 20, 32])
def test_few_rows_take_one_pass_of_skinny_and_many_are_dequantized(m):
    problem = Problem("int4g128", 8192, 8192, m, layout=CUDA_LAYOUT)
    config = heuristic(problem, gpu((9, 0)))
    assert isinstance(config, SkinnyConfig)
    assert m <= config.block_m <= m + 7
    assert heuristic(problem.at(100 * m + 400), gpu((9, 0))).family == "wgmma"
    assert heuristic(problem.at(100 * m + 400), gpu((10, 0))).family == "dequantize"


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (10, 0), (12, 0)])
def test_mma_serves_from_the_end_of_skinny_on(capability):
    problem = Problem("int4g128", 8192, 8192, 65, "fp16", "fp16", layout=CUDA_LAYOUT)
    order = [config.family for _, _, config in heuristic_intervals(problem, gpu(capability))]
    assert sorted(order, key=["skinny", "mma", "dequantize"].index) == order
    assert heuristic(problem, gpu(capability)).family == "mma"


def test_mma_fills_the_multiprocessors():
    for n, k in ((8192, 8192), (4096, 14336), (8192, 1024), (7168, 8192)):
        for m in (96, 128, 256):
            config = mma_default(Problem("int4g128", n, k, m, layout=CUDA_LAYOUT), gpu((9, 0)), m)
            assert config is not None
            blocks = -(-m // config.block_m) * -(-n // config.block_n) * config.split_k
            assert 96 <= blocks <= 132 * config.blocks_per_sm


def test_wgmma_serves_hopper_and_fills_its_multiprocessors():
    for n, k in ((8192, 8192), (4096, 14336), (8192, 1024), (7168, 8192), (6144, 4096)):
        for m in (33, 64, 128, 256, 1024, 4096):
            config = heuristic(Problem("int4g128", n, k, m, layout=CUDA_LAYOUT), gpu((9, 0)))
            assert isinstance(config, WgmmaConfig)
            dealt = wgmma_deal(config, m, n, k, 132)
            blocks = dealt.clusters * config.cluster_n * config.split_k
            assert 64 <= blocks <= 132 * config.blocks_per_sm


def test_newer_features_are_used_where_they_are_alone():
    problem = Problem("int4g128", 8192, 8192, 32, layout=CUDA_LAYOUT)
    hopper, ampere = heuristic(problem, gpu((9, 0))), heuristic(problem, gpu((8, 0)))
    assert (hopper.warpgroup, hopper.dependent_launch) == (1, 1)
    assert (ampere.warpgroup, ampere.dependent_launch, ampere.split_k) == (0, 0, 1)
    half = Problem("int4g128", 8192, 8192, 32, "fp16", "fp16", layout=CUDA_LAYOUT)
    assert heuristic(half, gpu((7, 5))).num_stages == 0


def test_blocks_fill_the_multiprocessors_once():
    for n, k in ((8192, 8192), (6144, 4096), (4096, 14336), (8192, 1024), (7168, 8192)):
        for m in (1, 8, 16):
            config = heuristic(Problem("int4g128", n, k, m, layout=CUDA_LAYOUT), gpu((9, 0)))
            rows = (64 if config.warpgroup else 16) * config.tiles_n
            assert 96 <= -(-n // rows) * config.split_k <= 132
