"""Faults injected for real while a model is tuned: the run ends by itself with the others intact; a
second run touches no offender and repeats no finished trial."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.tuned import model_config
from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.spec.config import config_id
from humming.spec.problem import Problem
from tests.tuner.worker.hostile import hostile_kernel
from tuner.pipeline import Job, tune
from tuner.planning.budget import Budget
from tuner.progress import Watch
from tuner.searching import compile_pool, search, trials
from tuner.store.migrate import revision
from tuner.store.open import open_store
from tuner.worker.isolation import Worker
from tuner.worker.messages import Done, Open

DEVICE = cpu_device(1)
OUTCOMES = {
    "segfault": "crashed",
    "abort": "crashed",
    "exit": "crashed",
    "hang": "timeout",
    "status": "launch_error",
    "zeros": "wrong_result",
    "past_out": "wrong_result",
    "past_workspace": "wrong_result",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A float32 model with one quantized layer of 48 x 256."""
    config = {**model_config(48, 256, "int4g128"), "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.fixture(autouse=True)
def enough(monkeypatch) -> dict[str, int]:
    """Searches end after so many candidates passed."""
    limit = {"passed": 6}
    monkeypatch.setattr(search, "stop", lambda passed, *_: passed >= limit["passed"])
    return limit


def run(model: Path, resume: bool = False, seconds: float = 240.0, device=DEVICE, m: int = 2):
    """Tunes `model` here: (config id, outcome, id) of trials, winners, notes."""
    said = io.StringIO()
    url = f"sqlite:///{model}/tuning.db"
    with open_store(url) as store:
        job = Job(model, device, (m,), resume=resume)
        watch = Watch(Console(file=said, width=200))
        tune(job, store, model / "tables", Budget(seconds), watch)
        found = store.measurements(here(device))
        winners = store.winners(here(device))
    rows = [(config_id(row.config), row.outcome, row.id) for row in found if row.config]
    return rows, winners, said.getvalue()


def injected(monkeypatch, names: list[str]) -> dict[str, str]:
    """Makes the candidates that are compiled after the heuristic's into what `names` say; config id
    -> name, filled as they come."""
    chosen: dict[str, str] = {}
    lock, waiting, first = threading.Lock(), list(names), []

    def instead(config, problem, device, timeout_s=60.0):
        key = config_id(config)
        with lock:
            if not first:
                first.append(key)
            elif key not in first and key not in chosen and waiting:
                chosen[key] = waiting.pop(0)
        if key in chosen:
            return hostile_kernel(chosen[key], device)
        return compiled(config, problem, device, timeout_s)

    monkeypatch.setattr(compile_pool, "compiled", instead)
    return chosen


def tuned_twice(model, chosen, names, enough):
    """Two runs, the second of which searches on."""
    rows, winners, _ = run(model)
    outcomes = {key: outcome for key, outcome, _ in rows}
    assert {outcomes[key] for key in chosen} <= {OUTCOMES[name] for name in names}
    assert {key: OUTCOMES[name] for key, name in chosen.items()}.items() <= outcomes.items()
    assert sorted(chosen.values()) == sorted(names)
    assert len(winners) == 1 and config_id(winners[0].config) not in chosen
    assert sum(outcome == "ok" for outcome in outcomes.values()) >= 1
    enough["passed"] += 4
    again, winners, _ = run(model, resume=True)
    assert len(again) > len(rows)
    assert max(Counter(key for key, _, _ in again).values()) == 1
    assert {row[2] for row in rows} <= {row[2] for row in again}
    assert len(winners) == 1 and config_id(winners[0].config) not in chosen


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(trials, "STALL_S", 3.0)


@pytest.mark.usefixtures("_impatient")
def test_a_crash_and_a_hang_are_rows_and_the_run_goes_on(model, monkeypatch, enough):
    names = ["segfault", "hang", "past_out"]
    tuned_twice(model, injected(monkeypatch, names), names, enough)


@pytest.mark.slow
@pytest.mark.usefixtures("_impatient")
def test_every_fault_of_a_kernel(model, monkeypatch, enough):
    names = list(OUTCOMES)
    tuned_twice(model, injected(monkeypatch, names), names, enough)


FAULTY = """#!/bin/sh
case "$1" in --version) exec {real} --version ;; esac
if grep -q "block_n = 32;" kernel.cpp; then kill -SEGV $$; fi
if grep -q "block_n = 48;" kernel.cpp; then sleep 1000; fi
exec {real} "$@"
"""


@pytest.mark.slow
def test_a_compiler_that_dies_or_hangs_is_a_row(model, monkeypatch, enough):
    script = model / "cxx"
    script.write_text(FAULTY.format(real="c++"))
    script.chmod(0o755)
    monkeypatch.setenv("HUMMING_CXX", str(script))
    monkeypatch.setenv("HUMMING_CACHE", str(model / "cache"))
    monkeypatch.setattr(compile_pool, "TIMEOUT_S", 6.0)
    enough["passed"] = 30
    _, winners, _ = run(model)
    with open_store(f"sqlite:///{model}/tuning.db") as store:
        found = store.measurements(here(DEVICE), outcome="compile_error")
        said = {row.config.block_n: row.detail for row in found}
    assert "SIGSEGV" in said[32] and "took longer than 6 s" in said[48]
    assert len(winners) == 1 and winners[0].config.block_n not in (32, 48)
    again, _, _ = run(model, resume=True)
    assert max(Counter(key for key, _, _ in again).values()) == 1


@pytest.mark.slow
def test_kill_9_of_the_worker_blames_nobody_at_once(model, enough):
    """As a system short of memory does: the candidate is tried again by another worker. The next
    one is killed when the run has got on, however slow the machine."""
    stop, killed = threading.Event(), []

    def kill() -> None:
        while not stop.wait(3.0):
            trials = _stored(model)
            if trials > (killed[-1] if killed else 0):
                killed.append(trials)
                for pid in _workers():
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        rows, _, _ = run(model, seconds=60.0)
    finally:
        stop.set()
        thread.join()
    assert killed
    assert rows and {outcome for _, outcome, _ in rows} <= {"ok", "crashed"}
    rows, winners, _ = run(model, resume=True)
    assert len(winners) == 1
    assert max(Counter(key for key, _, _ in rows).values()) == 1
    assert sum(outcome == "ok" for _, outcome, _ in rows) >= enough["passed"]


def _stored(model: Path) -> int:
    """Trials that are in the database by now."""
    url = f"sqlite:///{model}/tuning.db"
    if revision(url) is None:
        return 0
    with open_store(url, write=False) as store:
        return len(store.measurements(here(DEVICE)))


def _workers() -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            command = (status.parent / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        if parent == os.getpid() and b"tuner.worker.process" in command:
            found.append(int(status.parent.name))
    return found


@pytest.mark.slow
def test_a_full_disk_ends_the_run_in_a_sentence_and_loses_nothing(model):
    """No file of this process may grow beyond a limit, which a database reaches first."""
    database = model / "tuning.db"
    words = ["--model", str(model), "--db", str(database), "--m", "2", "--device", "cpu"]
    command = [sys.executable, "-m", "tuner.cli", *words, "--budget", "60s"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (180_000, 180_000))

    full = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert full.returncode in (1, 2), full.stderr
    assert "Traceback" not in full.stderr and "humming-tune: " in full.stderr
    with open_store(f"sqlite:///{database}") as store:
        before = {row.id for row in store.measurements(here())}
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with open_store(f"sqlite:///{database}") as store:
        rows = store.measurements(here())
    assert before <= {row.id for row in rows}
    counts = Counter(config_id(row.config) for row in rows if row.config)
    assert max(counts.values()) == 1


@pytest.mark.slow
def test_out_of_memory_shrinks_the_rotation_and_says_so():
    problem = Problem("int4g128", 2048, 2048, 1)
    device = replace(DEVICE, cache_bytes=4 * DEVICE.cache_bytes)
    with Worker(device) as worker:
        worker.open(Open(Problem("int4g128", 16, 128, 1), 1, 2), 60.0)
        pid = worker._process.pid
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (260 << 20)
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
        opened = worker.open(Open(problem, 1, 2), 60.0)
        assert isinstance(opened, Done)
        assert "copies of the weight" in opened.note
