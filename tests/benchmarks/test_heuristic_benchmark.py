"""benchmarks.heuristic without a GPU: constants come back from times that they made, and no shape
is judged by its own rows."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from benchmarks import heuristic as benchmark
from humming.dispatch.heuristics import heuristic
from humming.dispatch.heuristics_wgmma import COSTS, wgmma_cost
from humming.spec.config import WgmmaConfig, config_to_dict
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem
from tests.gpus import gpu

HOPPER = gpu((9, 0))
SHAPES = ((8192, 8192), (6144, 4096), (28672, 4096))


def _rows(costs):
    """What a device of these costs would have measured."""
    rows = []
    for n, k in SHAPES:
        for m in (64, 256, 1024):
            problem = Problem("int4g128", n, k, m, layout=CUDA_LAYOUT)
            default = heuristic(problem, HOPPER)
            assert isinstance(default, WgmmaConfig)
            for config in (default, replace(default, block_m=32), replace(default, tiles_n=3)):
                us = wgmma_cost(config, problem, HOPPER, costs) / benchmark._CYCLES_OF_US
                rows.append((problem, config, us))
    return rows


def test_a_fit_predicts_times_better():
    rows = _rows(replace(COSTS, step=COSTS.step * 2, block=COSTS.block / 2))
    fitted = benchmark.fitted(rows, HOPPER)

    def error(costs):
        cycles = benchmark._CYCLES_OF_US
        return sum(abs(wgmma_cost(c, p, HOPPER, costs) / cycles / us - 1) for p, c, us in rows)

    assert error(fitted) < 0.3 * error(COSTS)


def test_each_point_is_chosen_for_without_its_shape(tmp_path, capsys):
    rows = [
        {"format": p.format, "n": p.n, "k": p.k, "m": p.m, "config": config_to_dict(c), "us": us}
        for p, c, us in _rows(COSTS)
    ]
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps({"device": asdict(HOPPER), "rows": rows}), "utf-8")
    assert benchmark.main([str(file)]) == 0
    report = json.loads(file.read_text("utf-8"))
    assert len(report["points"]) == len(SHAPES) * 3
    assert report["chosen_over_best"] == pytest.approx(1.0, abs=1e-6)
    assert "times the best" in capsys.readouterr().out


def test_a_default_has_the_time_of_what_is_the_same_kernel_in_effect():
    problem = Problem("int4g128", 8192, 8192, 64, layout=CUDA_LAYOUT)
    default = heuristic(problem, HOPPER)
    assert isinstance(default, WgmmaConfig) and default.raster_group_m == 8
    rows = [(problem, replace(default, raster_group_m=32), 20.0)]
    (point,) = benchmark.left_out(rows, HOPPER)
    assert (point["default"], point["default_us"]) == (str(default), 20.0)


def test_a_missing_file_is_said_in_one_sentence(tmp_path, capsys):
    assert benchmark.main([str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
