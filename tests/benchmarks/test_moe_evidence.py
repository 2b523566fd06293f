"""What a tuning database knows of layers of experts, as rows by time."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import moe_evidence
from benchmarks.moe_layers import LAYERS, problem_of
from humming.dispatch.heuristics import heuristic, runners_up
from humming.errors import UsageError
from humming.spec.identity import Identity
from tests.gpus import gpu
from tuner.store.open import open_store
from tuner.store.records import MeasurementDraft

NAME = "qwen30b_down"


def identity(name: str) -> Identity:
    device = replace(gpu((9, 0)), name=name, uuid=f"GPU-{name}")
    return Identity(
        device, "580", "nvrtc", "13.0.88", "0" * 32, "0.1.0", "cuda-cold-graph-median-3"
    )


def fill(url: str, name: str = "H") -> None:
    device = gpu((9, 0), 132)
    with open_store(url) as store:
        for m in (16, 64):
            problem = problem_of(LAYERS[NAME], "int4g128", m, device)
            other = replace(problem, n=problem.n + 16)
            for i, config in enumerate([heuristic(problem, device), *runners_up(problem, device)]):
                for asked, us in ((problem, 30.0 - i), (problem, 31.0), (other, 1.0)):
                    ticket = store.begin(identity(name), asked, config)
                    draft = MeasurementDraft(
                        identity=identity(name),
                        problem=asked,
                        config=config,
                        outcome="ok",
                        us=us,
                        samples=(us,),
                    )
                    store.finish(ticket, draft)


def test_a_row_has_each_configs_least_time(tmp_path):
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    fill(url)
    part = moe_evidence.part_of(url, [64])
    assert [(row["layer"], row["m"]) for row in part["rows"]] == [(NAME, 64)]
    times = [us for us, _ in part["rows"][0]["us"]]
    assert times == sorted(times) and max(times) == 30.0 and len(times) > 3
    assert part["device"] == "H" and part["devices"] == ["GPU-H, driver 580"]


def test_times_of_two_kinds_of_device_are_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    fill(url, "H")
    fill(url, "B")
    with pytest.raises(UsageError, match="B and H"):
        moe_evidence.part_of(url, [16])


def test_the_command_writes_parts_and_rows(tmp_path, monkeypatch):
    url, out = f"sqlite:///{tmp_path / 'tuning.db'}", Path(tmp_path / "out.json")
    fill(url)
    given = ["--part", url, "16", "--part", url, "64", "--commit", "abc", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["moe_evidence", *given])
    assert moe_evidence.main() == 0
    body = json.loads(out.read_text("utf-8"))
    assert [(row["part"], row["m"]) for row in body["rows"]] == [(0, 16), (1, 64)]
    assert len(body["parts"]) == 2 and "rows" not in body["parts"][0]


def test_a_database_without_such_times_is_refused(tmp_path):
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    fill(url)
    with pytest.raises(UsageError, match="no times of these layers"):
        moe_evidence.part_of(url, [7])


def test_a_folder_is_no_place_for_the_file(tmp_path, monkeypatch, capsys):
    url = f"sqlite:///{tmp_path / 'tuning.db'}"
    fill(url)
    given = ["--part", url, "16", "--commit", "abc", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["moe_evidence", *given])
    assert moe_evidence.main() == 2
    assert "cannot be written" in capsys.readouterr().err
