"""What was missed, ranked by traffic x expected gain, and tuned. What was counted is
test_store_ledger.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from humming import ledger
from humming.dispatch.heuristics import heuristic
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.spec.problem import Problem
from tuner.fleet.misses import missed_tasks, rank, saved_us
from tuner.store.ledger import Traffic
from tuner.store.open import open_store
from tuner.store.records import Winner
from tuner.store.store import Store

DEVICE = cpu_device(1)
HERE = here(DEVICE)
SMALL = Problem("int8", n=64, k=64, m=1, activation_dtype="fp32", output_dtype="fp32")
LARGE = Problem("int8", n=512, k=512, m=1, activation_dtype="fp32", output_dtype="fp32")


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "x.db")) as opened:
        yield opened


def _won(store: Store, problem: Problem, us: float, heuristic_us: float) -> Winner:
    config = heuristic(problem, DEVICE)
    return store.promote(HERE, problem, config, us=us, heuristic_us=heuristic_us)


def _ranked(asked: list[Traffic], winners: list[Winner]) -> list[tuple[int, int, int]]:
    return [(one.problem.n, one.problem.m, one.misses) for one in rank(asked, HERE, winners)]


def test_traffic_times_gain_orders_them() -> None:
    few, many = Traffic(LARGE, 10, 10), Traffic(SMALL, 20, 20)
    assert _ranked([few, many], []) == [(512, 1, 10), (64, 1, 20)]  # 64 x the bytes
    assert _ranked([few, Traffic(SMALL, 5000, 5000)], []) == [(64, 1, 5000), (512, 1, 10)]


def test_what_is_served_by_a_winner_is_no_miss_any_more(store: Store) -> None:
    asked = [Traffic(SMALL.at(m), 10, 10) for m in (1, 2, 64)] + [Traffic(LARGE, 1, 0)]
    won = _won(store, SMALL, 8.0, 10.0)
    assert _ranked(asked, [won]) == [(64, 64, 10)]


def test_neighbouring_numbers_of_tokens_are_one_problem() -> None:
    asked = [Traffic(SMALL.at(m), m, m) for m in (1, 30, 31, 32, 33, 500)]
    assert _ranked(asked, []) == [(64, 500, 500), (64, 33, 30 + 31 + 32 + 33), (64, 1, 1)]


def test_a_gain_is_what_was_gained_with_the_nearest(store: Store) -> None:
    near, far = _won(store, SMALL.at(2), 5.0, 10.0), _won(store, LARGE.at(64), 99.0, 100.0)
    expected = 5.0 * SMALL.least_bytes / SMALL.at(2).least_bytes
    assert saved_us(SMALL, [near, far]) == pytest.approx(expected)
    assert saved_us(SMALL, [_won(store, SMALL.at(4), 10.0, 10.0)]) > 0


def test_what_cannot_run_here_is_left_out() -> None:
    other = Problem("int4g128", n=64, k=64, m=1, layout="cuda_n16k64")
    assert rank([Traffic(other, 5, 5), Traffic(SMALL.at(0), 5, 5)], HERE, []) == []


def test_counts_of_this_machine_become_tasks(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = ledger._Ledger()
    counts.started = True
    monkeypatch.setattr(ledger, "_LEDGER", counts)
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    assert missed_tasks(store, HERE)[0] == []
    ledger.tally(HERE, SMALL, missed=True)[0] += 40
    ledger.tally(HERE, SMALL.at(64), missed=True)[0] += 4000
    ledger.tally(HERE, LARGE, missed=False)[0] += 10**6
    ledger.flush()
    tasks, workload = missed_tasks(store, HERE)
    assert [task.problem.m for task in tasks] == [64, 1]
    assert all(task.m_low <= task.problem.m < task.m_high for task in tasks)
    assert tasks[1].m_high <= tasks[0].m_low
    assert tasks[0].group.layers == ("missed 4000 times",) and len(workload.problems) == 2


@pytest.mark.slow
def test_a_server_of_calls_is_tuned_by_them(tmp_path: Path) -> None:
    """The whole round: serve untuned, tune what was missed, serve tuned, nothing is left."""
    root = Path(__file__).parents[3]
    environment = {
        **os.environ,
        "HUMMING_DATA": str(tmp_path),
        "PYTHONPATH": str(root),
        "OMP_NUM_THREADS": "1",
    }
    serve = (
        "import humming, torch, sys\n"
        "layer = humming.HummingLinear.from_linear(torch.nn.Linear(64, 64, bias=False), 'int8')\n"
        "with torch.inference_mode():\n"
        "    for _ in range(50): layer(torch.randn(1, 64))\n"
        "print(layer)\n"
    )

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, cwd=root
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    tune = ("-m", "tuner.cli", "--from-misses", "--device", "cpu", "--budget", "120s", "--json")
    assert "no tuned table" in run("-c", serve)
    report = json.loads(run(*tune))
    assert [row["m"] for row in report["problems"]] == [1]
    assert report["settled"] == 1 and report["measured"] > 0
    assert "tuned exact" in run("-c", serve)
    again = json.loads(run(*tune))
    assert again["problems"] == [] and again["measured"] == 0
