"""Many processes that write and read one database at once, some killed, the server restarted under
them: counts what is lost, repeated or refused. Databases of many rows are store_rows.py.

`python -m benchmarks.store_crowd URL FIRST END LIFE` is one of the crowd; killed ones live again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from humming.spec.config import CpuConfig
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store.open import open_store
from tuner.store.records import MeasurementDraft

ROOT = Path(__file__).parents[1]
_REFUSALS = 60
DEVICE = Device("cpu", "Made up", "x86_64", 32 << 20, isa=("avx2",), threads=8)
IDENTITY = Identity(DEVICE, "", "g++", "g++ 12.2.0", "0" * 32, "0.1.0", "made-up-1")
CONFIG = CpuConfig("stream", "avx2", 1, 16, 128, 1, 0, 1)


def problem(m: int) -> Problem:
    """The problem that stands for trial number `m`."""
    return Problem("int4g128", n=4096, k=4096, m=m)


def work(url: str, first: int, end: int, life: int) -> None:
    """Begins, finishes and reads back the trials of [first, end), in a later life those that the
    database lacks; says each once it is acknowledged and was read."""
    with open_store(url) as store:
        print("ready", flush=True)
        for m in range(first, end):
            which = problem(m)
            if life > 1 and store.measurements(IDENTITY, which):
                continue
            draft = MeasurementDraft(
                identity=IDENTITY,
                problem=which,
                config=CONFIG,
                outcome="ok",
                us=float(m),
                samples=(float(m),) * 9,
            )
            made = store.finish(store.begin(IDENTITY, which, CONFIG), draft)
            found = store.measurements(IDENTITY, which)
            assert [past.id for past in found] == [made.id], f"trial {m} reads back as {found}"
            print(m, made.id, flush=True)


@dataclass
class _Writer:
    """One process of the crowd, and what it acknowledged over all its lives."""

    first: int
    end: int
    process: subprocess.Popen[str] | None = None
    lives: int = 0
    killed: bool = False
    refused: int = 0
    acknowledged: dict[int, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def crowd(
    url: str,
    processes: int,
    each: int,
    kills: int = 0,
    disturb: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """Figures of `processes` writers of `each` trials: `lost` and `repeated` must be 0, `errors`
    empty.

    `kills` of them are ended by SIGKILL on the way and replaced; `disturb` is called once when half
    is done.
    """
    open_store(url).close()
    writers = [_Writer(1 + i * each, 1 + (i + 1) * each) for i in range(processes)]
    start = time.monotonic()
    threads = [threading.Thread(target=_live, args=(writer, url)) for writer in writers]
    for thread in threads:
        thread.start()
    _harm(writers, processes * each, kills, disturb)
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - start
    return _verdict(url, writers, processes * each, seconds)


def _live(writer: _Writer, url: str) -> None:
    """Runs a writer until it is through; a killed one is replaced by another, a failed one not."""
    while True:
        writer.lives, writer.killed = writer.lives + 1, False
        command = [sys.executable, "-m", "benchmarks.store_crowd", url]
        writer.process = process = subprocess.Popen(
            [*command, *map(str, (writer.first, writer.end, writer.lives))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        unopened = True
        for line in process.stdout:
            words = line.split()
            unopened = False  # it said `ready` at the least: it had opened the database
            if len(words) == 2 and line.endswith("\n"):
                writer.acknowledged[int(words[0])] = words[1]
        said = process.communicate()[1].strip()
        if process.returncode == 0:
            return
        if "StoreAwayError" in said and unopened and writer.refused < _REFUSALS:
            writer.refused += 1  # a server that is away is waited for by who reached it before
            time.sleep(1.0)
            continue
        if process.returncode != -signal.SIGKILL or not writer.killed:
            writer.errors.append(said.splitlines()[-1] if said else f"exit {process.returncode}")
            return


def _harm(
    writers: list[_Writer], total: int, kills: int, disturb: Callable[[], None] | None
) -> None:
    """Kills writers at random moments, evenly over the run, and disturbs once in its middle."""
    draw = random.Random(total)
    at = sorted([(total * (i + 1) // (kills + 2), "kill") for i in range(kills)])
    due = sorted(at + ([(total // 2, "disturb")] if disturb else []))
    while due and any(w.process is None or w.process.poll() is None for w in writers):
        if sum(len(w.acknowledged) for w in writers) < due[0][0]:
            time.sleep(0.01)
            continue
        if due.pop(0)[1] == "disturb":
            assert disturb is not None
            disturb()
            continue
        busy = [w for w in writers if w.process and w.process.poll() is None and w.acknowledged]
        if busy:
            victim = draw.choice(busy)
            victim.killed = True
            assert victim.process is not None
            victim.process.kill()


def _verdict(url: str, writers: list[_Writer], total: int, seconds: float) -> dict[str, Any]:
    with open_store(url) as store:
        trials = store.measurements(IDENTITY)
        left_over = store.suspects(IDENTITY)
    found = {past.problem.m: past.id for past in trials}
    acknowledged = {m: name for writer in writers for m, name in writer.acknowledged.items()}
    return {
        "processes": len(writers),
        "trials": total,
        "seconds": round(seconds, 1),
        "trials_per_s": round(total / seconds, 1),
        "transactions_per_s": round(3 * total / seconds, 1),
        "kills": sum(writer.lives - 1 - writer.refused for writer in writers),
        "refused_starts": sum(writer.refused for writer in writers),
        "lost": sum(found.get(m) != name for m, name in acknowledged.items())
        + total
        - len(found.keys() & set(range(1, total + 1))),
        "repeated": len(trials) - len(found),
        "in_flight_left": len(left_over),
        "errors": [error for writer in writers for error in writer.errors],
    }


if __name__ == "__main__":
    work(sys.argv[1], *map(int, sys.argv[2:5]))
