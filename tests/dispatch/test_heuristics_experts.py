"""The heuristic of experts with few rows against a sweep that was recorded on an H200."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from benchmarks.moe_layers import LAYERS, problem_of
from humming.dispatch.heuristics import heuristic
from tests.gpus import gpu

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h200_experts_sweep.json"


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
    assert len(found) >= 0.9 * len(rows)
    assert max(found) < 1.05
    assert statistics.geometric_mean(found) < 1.02
