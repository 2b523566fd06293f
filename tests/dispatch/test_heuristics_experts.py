"""The heuristic of experts against what a tuner found on an H200."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from benchmarks.moe_layers import LAYERS, OTHERS, problem_of
from humming.dispatch.heuristics import heuristic, runners_up
from humming.spec.legality import config_violations
from tests.gpus import gpu

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_experts_evidence.json"


def test_what_serves_untuned_is_near_the_best_that_was_recorded():
    device, found = gpu((9, 0), 132), []
    rows = json.loads(RESULTS.read_text("utf-8"))["rows"]
    for row in rows:
        problem = problem_of(LAYERS[row["layer"]], row["format"], row["m"], device)
        config = heuristic(problem, device)
        times = {text: us for us, text in row["us"]}
        own = times.get(f"{config.family}: {config}")
        if own is not None:
            found.append(own / min(times.values()))
            assert found[-1] < (1.05 if row["m"] <= 256 else 1.07)
    assert len(found) >= 0.9 * len(rows)
    assert statistics.geometric_mean(found) < 1.01


def test_what_a_search_tries_first_holds_the_best_that_was_recorded():
    device = gpu((9, 0), 132)
    for row in json.loads(RESULTS.read_text("utf-8"))["rows"]:
        problem = problem_of(LAYERS[row["layer"]], row["format"], row["m"], device)
        first = [heuristic(problem, device), *runners_up(problem, device)]
        times = {text: us for us, text in row["us"]}
        tried = [times[name] for name in (f"{c.family}: {c}" for c in first) if name in times]
        assert min(tried) < 1.02 * min(times.values())


@pytest.mark.parametrize("format", ["int4g128", "nvfp4", "int8", "uint4g24z", "mxfp4-fp8e4m3"])
@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (9, 0)])
def test_what_a_search_tries_first_is_legal_and_no_default(capability, format):
    device = gpu(capability, 132)
    for layer in LAYERS.values():
        for m in (0, 1, 16, 64, 128, 200, 256, 1000, 1024, 4096):
            problem = problem_of(layer, format, m, device)
            ranked = runners_up(problem, device)
            assert heuristic(problem, device) not in ranked
            assert len(set(ranked)) == len(ranked) <= 10
            assert not any(config_violations(config, problem, device) for config in ranked)


def test_a_tile_holds_the_rows_of_a_busy_expert():
    device = gpu((9, 0), 132)
    for m, block_m in ((64, 8), (256, 16)):  # two and eight rows an expert in the mean
        config = heuristic(problem_of(LAYERS["dsv3_tp8_gateup"], "int4g128", m, device), device)
        assert config.family == "skinny"
        assert config.block_m == block_m


@pytest.mark.parametrize("format", ["int4g128", "mxfp4", "int8"])
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_blocks_that_walk_leave_no_multiprocessor_with_few_warps(capability, format):
    device = gpu(capability, 132)
    for layer in (*LAYERS.values(), *OTHERS.values()):
        for m in (2, 8, 16, 32, 64, 128, 256):
            config = heuristic(problem_of(layer, format, m, device), device)
            if getattr(config, "walk", 0):
                assert 8 <= config.warps * config.blocks_per_sm <= 16
