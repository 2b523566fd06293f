"""benchmarks.transfer on made-up evidence: what is served is never better informed than a table of
the other layers, takes what they prove, and loses nothing to the heuristic on recorded sweeps."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks import transfer as benchmark
from benchmarks.transfer import Evidence, replay, summary
from humming.dispatch.heuristics import heuristic
from humming.spec.config import CpuConfig, config_to_dict
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.problem import Problem
from tests.gpus import gpu

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
DEVICE = Device("cpu", "Some CPU", "x86_64", 2**25, isa=CODE_PATH_FLAGS["avx2"], threads=4)
OTHER = CpuConfig("stream", "avx2", 1, 32, 128, 2, 512, 1)
SHAPES = ((1024, 1024), (1536, 1024), (2048, 2048), (4096, 1024), (1024, 4096), (4096, 4096))
LAYERS = [Problem("int4g128", n, k, 0) for n, k in SHAPES]
MS = (1, 2, 4)


def evidence(ratio_of):
    """Every layer at MS: the heuristic takes 100 us, OTHER `ratio_of(problem)` of that."""
    return Evidence(
        DEVICE,
        {
            problem: {heuristic(problem, DEVICE): 100.0, OTHER: 100.0 * ratio_of(problem)}
            for problem in (layer.at(m) for layer in LAYERS for m in MS)
        },
    )


def test_a_config_that_wins_on_all_other_layers_is_taken():
    points = replay(evidence(lambda _: 0.8))
    assert len(points) == len(SHAPES) * len(MS)
    assert all(point.taken is not None and point.served_us == 80.0 for point in points)
    found = summary(points)
    assert found["taken"]["faster_than_heuristic"] == len(points)
    assert found["taken"]["expected"] == {"median_regret": 0.0, "in_interval": len(points)}
    assert found["served"] == {"mean": 0.0, "most": 0.0}
    assert found["heuristic"] == {"mean": 0.25, "most": 0.25}


def test_a_config_that_wins_on_some_layers_only_is_not():
    points = replay(evidence(lambda problem: 0.8 if problem.n == 1024 else 1.3))
    assert all(point.taken is None and point.served_us == 100.0 for point in points)
    found = summary(points)
    assert found["taken"]["points"] == 0 and found["taken"]["served"] is None
    assert found["nearest_without_evidence"]["nearest"]["most"] == pytest.approx(0.3)


def test_a_layer_is_not_judged_by_its_own_times():
    """It loses by what all the others prove, and the report says so."""
    odd = LAYERS[2]
    points = replay(evidence(lambda problem: 1.5 if problem.at(0) == odd else 0.8))
    of_odd = [point for point in points if point.problem.at(0) == odd]
    assert all(point.taken is not None and point.served_us == 150.0 for point in of_odd)
    assert summary(points)["taken"]["slower_than_heuristic"] == len(of_odd)


def _file(path, device, found):
    rows = [
        {"format": p.format, "n": p.n, "k": p.k, "m": p.m, "config": config_to_dict(c), "us": us}
        for p, times in found.items()
        for c, us in times.items()
    ]
    path.write_text(json.dumps({"device": asdict(device), "rows": rows}), "utf-8")
    return path


def test_files_are_of_one_device_and_their_report_is_written_beside_others(tmp_path, capsys):
    whole = evidence(lambda _: 0.8)
    out = tmp_path / "out.json"
    halves = [
        _file(tmp_path / f"{i}.json", DEVICE, dict(list(whole.us.items())[i::2])) for i in (0, 1)
    ]
    for name in ("one", "other"):
        arguments = [*map(str, halves), "--name", name, "--out", str(out)]
        assert benchmark.main(arguments) == 0
    found = json.loads(out.read_text("utf-8"))
    assert list(found) == ["one", "other"] and found["one"] == found["other"]
    assert found["one"]["points"] == len(found["one"]["rows"]) == len(whole.us)
    foreign = _file(tmp_path / "gpu.json", replace(gpu((9, 0)), name="A GPU"), {})
    assert benchmark.main([str(halves[0]), str(foreign), "--name", "x"]) == 2
    assert "another device" in capsys.readouterr().err


def test_what_is_recorded_lost_nothing_to_the_heuristic():
    for name, found in json.loads((RESULTS / "transfer.json").read_text("utf-8")).items():
        assert found["points"] == len(found["rows"]) > 0, name
        assert found["served"]["mean"] <= found["heuristic"]["mean"], name
        assert not found["taken"]["slower_than_heuristic"], name
