"""The ledger of a serving process: how often which problem was called, and by what it was served,
counted in memory and written to a file of the data folder now and then. Who reads it is
tuner/store/ledger.py.

A call pays for one addition. Counts are as good as exact: two threads that add in the same moment
may lose one. Replays of a CUDA graph are no calls, and are not counted.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from humming.settings import data_dir, database_url, keeps_ledger
from humming.spec.identity import Identity
from humming.spec.problem import Problem

ENTRY_POINTS = "humming.ledger"
"""Group of functions (url, folder) -> anything that take the folder's files into a database."""
SCHEMA = 1
FLUSH_S = 600.0
MOST_FILES = 512
"""Files that processes leave behind where nobody ever takes them in; beyond it the oldest go."""

Tally = list[int]
"""One number: what a call adds one to."""


class _Ledger:
    """Everything that this process counted."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.counts: dict[tuple[str, str, bool], Tally] = {}
        self.readers: list[tuple[Callable[[], None], weakref.ref[Any]]] = []
        self.identities: dict[str, Identity] = {}
        self.problems: dict[str, Problem] = {}
        self.since = datetime.now(timezone.utc)
        self.written, self.started = 0, False

    def of(self, identity: Identity, problem: Problem, missed: bool) -> Tally:
        """The number of a problem, made where it is new."""
        with self.lock:
            self.identities[identity.id] = identity
            self.problems[problem.id] = problem
            return self.counts.setdefault((identity.id, problem.id, missed), [0])

    def begin_anew(self) -> None:
        """In a forked child: what its parent counted is its parent's."""
        self.lock = threading.Lock()
        for take, _ in self.readers:
            take()
        for cell in self.counts.values():
            cell[0] = 0
        self.since, self.written = datetime.now(timezone.utc), 0
        _run_thread()


_LEDGER = _Ledger()
_UNCOUNTED: ContextVar[bool] = ContextVar("uncounted", default=False)


@contextmanager
def uncounted() -> Iterator[None]:
    """Calls of a problem that is first called inside are not counted: they serve nobody."""
    before = _UNCOUNTED.set(True)
    try:
        yield
    finally:
        _UNCOUNTED.reset(before)


def tally(identity: Identity, problem: Problem, missed: bool) -> Tally:
    """The number to which each call of `problem`, its m included, adds one. `missed`: a heuristic
    config serves it. The same for all layers that ask for the same."""
    if _UNCOUNTED.get() or not keeps_ledger():
        return [0]
    _start()
    return _LEDGER.of(identity, problem, missed)


def watch(
    identity: Identity, problem: Problem, missed: bool, owner: object, read: Callable[[], int]
) -> None:
    """Counts what `read` says at each flush, and once more when `owner` goes; `read` must not hold
    `owner`. For launchers that count by themselves."""
    if _UNCOUNTED.get() or not keeps_ledger():
        return
    cell = tally(identity, problem, missed)
    taken: Tally = [0]

    def take() -> None:
        now = read()
        with _LEDGER.lock:
            cell[0] += now - taken[0]
            taken[0] = now

    _LEDGER.readers.append((take, weakref.ref(owner)))
    weakref.finalize(owner, take).atexit = False


def flush() -> Path | None:
    """Writes what this process counted, all of it each time; None where there is nothing new, or
    nowhere to write: serving goes on either way."""
    for take, owner in list(_LEDGER.readers):
        if owner() is not None:  # else it took its last count already
            take()
    with _LEDGER.lock:
        _LEDGER.readers = [item for item in _LEDGER.readers if item[1]() is not None]
        calls = sum(cell[0] for cell in _LEDGER.counts.values())
        if calls == _LEDGER.written:
            return None
        content = _content()
        _LEDGER.written = calls
    path = folder() / f"{socket.gethostname()}-{os.getpid()}-{_LEDGER.since:%Y%m%dT%H%M%S.%f}.json"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content), "utf-8")
        part.replace(path)
        _sweep(path.parent)
        return path
    return None


def folder() -> Path:
    """Where the processes of this user leave their files."""
    return data_dir() / "ledger"


def _content() -> dict[str, Any]:
    rows: dict[tuple[str, str], list[int]] = {}
    for (identity, problem, missed), cell in list(_LEDGER.counts.items()):
        row = rows.setdefault((identity, problem), [0, 0])
        row[0] += cell[0]
        row[1] += cell[0] if missed else 0
    return {
        "schema": SCHEMA,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": _LEDGER.since.isoformat(),
        "until": datetime.now(timezone.utc).isoformat(),
        "identities": {name: asdict(found) for name, found in _LEDGER.identities.items()},
        "calls": [
            {
                "identity": identity,
                "problem": asdict(_LEDGER.problems[problem]),
                "calls": calls,
                "misses": misses,
            }
            for (identity, problem), (calls, misses) in rows.items()
            if calls
        ],
    }


def _sweep(where: Path) -> None:
    files = sorted(where.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)


def _start() -> None:
    """From the first tally on: a thread that flushes now and then, and a last flush at exit."""
    with _LEDGER.lock:
        if _LEDGER.started:
            return
        _LEDGER.started = True
    atexit.register(flush)
    os.register_at_fork(after_in_child=_LEDGER.begin_anew)
    _run_thread()


def _run_thread() -> None:
    threading.Thread(target=_keep, name="humming-ledger", daemon=True).start()


def _keep() -> None:
    while True:
        time.sleep(FLUSH_S)
        flush()
        deliver()


def deliver() -> None:
    """Hands the files to the database of HUMMING_DB where that is a server's. One that is away, or
    whose role may only read, is asked again later: the files stay."""
    url = database_url()
    if url.startswith("sqlite:"):
        return
    for point in entry_points(group=ENTRY_POINTS):
        with suppress(Exception):  # whatever a database does must not reach who serves
            point.load()(url, folder())
