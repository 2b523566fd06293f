"""The defaults of products of bytes: legal for every m, and filling Hopper's multiprocessors."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from humming.dispatch.heuristics import heuristic, heuristic_intervals, runners_up
from humming.dispatch.heuristics_wgmma8 import wgmma8_near
from humming.spec.config import ScaledMmConfig, Wgmma8Config
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations, problem_violations, wgmma_deal
from humming.spec.problem import Problem
from tests.gpus import gpu

SWEEP = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_bytes_configs.json"
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
            assert dealt.clusters * config.split_k >= 96


@pytest.mark.parametrize("format", FORMATS)
def test_near_configs_are_legal_and_torchs_product_is_among_them(format):
    for n, k in ((8192, 8192), (6144, 4096), (8192, 1024), (1000, 1304)):
        for m in (1, 16, 33, 64, 128, 300, 4096):
            problem = Problem(format, n, k, m, layout=CUDA_A8_LAYOUT)
            ranked = runners_up(problem, gpu((9, 0)))
            assert ranked and len(set(ranked)) == len(ranked)
            assert not any(config_violations(config, problem, gpu((9, 0))) for config in ranked)
            torchs = not problem_violations("scaled_mm", problem, gpu((9, 0)))
            assert torchs == (ScaledMmConfig(fast_sums=1) in ranked)
    assert runners_up(problem.at(0), gpu((9, 0))) == []


@pytest.mark.parametrize("format", FORMATS)
def test_four_warpgroups_that_take_turns_have_registers_for_their_sums(format):
    for n, k in ((8192, 8192), (4096, 14336), (8192, 1024)):
        for _, _, config in heuristic_intervals(
            Problem(format, n, k, 0, layout=CUDA_A8_LAYOUT), gpu((9, 0))
        ):
            if isinstance(config, Wgmma8Config) and config.k_warpgroups == 4:
                assert config.block_m * config.tiles_n <= 32


def test_many_rows_of_fp8_are_torchs():
    problem = Problem("fp8e4m3-fp8e4m3", 8192, 8192, 4096, layout=CUDA_A8_LAYOUT)
    assert isinstance(heuristic(problem, gpu((9, 0))), ScaledMmConfig)
    blocks = Problem("fp8e4m3b128-fp8e4m3g128", 8192, 8192, 4096, layout=CUDA_A8_LAYOUT)
    assert isinstance(heuristic(blocks, gpu((9, 0))), Wgmma8Config)


def test_of_recorded_configs_the_fastest_or_nearly_so_is_ranked_first():
    """Those of the default's own tiles, which the sweep has without turns: few rows take some."""
    knobs = ("block_m", "warpgroups", "tiles_n", "cluster_n", "blocks_per_sm", "stream_k")
    lost = []
    for row in json.loads(SWEEP.read_text("utf-8"))["rows"]:
        shape = (row["format"], row["n"], row["k"], row["m"])
        if row["m"] < 64:
            continue
        times = {tuple(config[knob] for knob in knobs): config["us"] for config in row["configs"]}
        ranked = wgmma8_near(Problem(*shape, layout=CUDA_A8_LAYOUT), gpu((9, 0), 132))
        plain = [config for config in ranked if config.k_warpgroups == config.split_k == 1]
        recorded = [times.get(tuple(getattr(config, knob) for knob in knobs)) for config in plain]
        own = next((us for us in recorded if us is not None), None)
        if own is not None:
            lost.append(own / min(times.values()))
            assert lost[-1] < 1.15, shape
    assert len(lost) > 60
    assert statistics.geometric_mean(lost) < 1.01
