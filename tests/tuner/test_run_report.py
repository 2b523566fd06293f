"""What a run says at its end: numbers of things, and times that were taken on a busy machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from humming.dispatch.heuristics import heuristic
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.spec.config import config_to_dict
from humming.spec.naming import counted
from humming.spec.problem import Problem
from tuner.measuring.conditions import marked
from tuner.pipeline import Tuned
from tuner.planning.tasks import Task
from tuner.report import print_table, to_json
from tuner.searching.candidates import Candidates
from tuner.store.open import open_store
from tuner.store.records import MeasurementDraft
from tuner.workload import LayerGroup, Workload

DEVICE = cpu_device(1)
HERE = here(DEVICE)
PROBLEM = Problem("int8", n=64, k=64, m=1, activation_dtype="fp32", output_dtype="fp32")
WAITED = "threads waited 49% of the time for a core"


def report(**changes: Any) -> dict[str, Any]:
    ms = {"tuned": None, "heuristic": None, "torch": None}
    made = {"model": "tiny", "device": "cpu", "measured": 1, "settled": 0, "problems": []}
    return {**made, "skipped": [], "ms_per_token": ms, "warnings": [], **changes}


def printed(capsys: pytest.CaptureFixture[str], told: dict[str, Any]) -> str:
    print_table(told, Console(width=200))
    return capsys.readouterr().out


def test_one_is_told_in_the_singular(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, report(settled=-1))
    assert "measured 1 candidate\n" in text and "1 problem not reached" in text
    text = printed(capsys, report(measured=2, settled=-2))
    assert "measured 2 candidates\n" in text and "2 problems not reached" in text


@pytest.mark.parametrize(("count", "says"), [(0, "0 entries"), (1, "1 entry"), (2, "2 entries")])
def test_numbers_of_things(count: int, says: str) -> None:
    assert counted(count, "entry", "entries") == says
    assert counted(count, "layer") == f"{count} layer{'s' if count != 1 else ''}"


def row(m: int, foul: str | None) -> dict[str, Any]:
    config = config_to_dict(heuristic(PROBLEM, DEVICE))
    times = {"us": 2.0, "heuristic_us": 3.0, "torch_us": 105.0, "limit_us": 1.0}
    made = {"layers": ["qkv"], "n": 64, "k": 64, "m": m, "config": config, "source": "tuned"}
    return {**made, **times, "torch_foul": foul}


@pytest.mark.parametrize(("first", "second"), [(WAITED, WAITED), (None, WAITED), (None, None)])
def test_times_of_torch_taken_beside_other_work_are_marked(
    capsys: pytest.CaptureFixture[str], first: str | None, second: str | None
) -> None:
    ms = {"tuned": 1.0, "heuristic": 2.0, "torch": 50.0}
    rows = [row(1, first), row(16, second)]
    text = printed(capsys, report(problems=rows, settled=2, ms_per_token=ms))
    foul = sum(bool(one["torch_foul"]) for one in rows)
    assert text.count("105?") == foul
    assert ("(torch 50.00?, heuristic" in text) == (first is not None)
    assert (f"{counted(foul, 'time')} of torch, as {WAITED}" in text) == (foul > 0)


@pytest.mark.parametrize("waited", [0.0, 0.49])
def test_a_run_says_why_a_time_of_torch_proves_nothing(tmp_path: Path, waited: float) -> None:
    config = heuristic(PROBLEM, DEVICE)
    group = LayerGroup("dense", 64, 64, 1, None, None, "int8", ("qkv",))
    task = Task(group, PROBLEM, Candidates({}, {}, config), 0, 2)
    beside = marked({"waited_share": waited})
    with open_store(str(tmp_path / "x.db")) as store:
        store.finish(
            None,
            MeasurementDraft(
                identity=HERE,
                problem=PROBLEM,
                config=None,
                outcome="ok",
                us=105.0,
                samples=(105.0,),
                kind="torch",
                conditions=beside,
            ),
        )
        store.promote(HERE, PROBLEM, config, us=2.0, heuristic_us=2.0, torch_us=105.0)
        tuned = Tuned(Workload("tiny", 1, "fp32", (group,), (), ()), HERE, [task], [], 0, None)
        told = to_json(tuned, store)["problems"][0]["torch_foul"]
    assert told == (WAITED if waited else None)
