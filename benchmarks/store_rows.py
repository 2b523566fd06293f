"""A database of very many rows of evidence, and how long what the tuner asks of it takes. Many
processes at once are store_crowd.py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, insert, text

from benchmarks.store_crowd import DEVICE, IDENTITY
from humming.settings import tables_dir
from humming.spec.config import CpuConfig, config_id
from humming.spec.identity import Identity
from humming.spec.problem import M_END, Problem
from tuner.pipeline import Tuned
from tuner.planning.tasks import Task
from tuner.report import to_json
from tuner.searching.candidates import Candidates
from tuner.store import rows, schema, tables
from tuner.store.address import parse
from tuner.store.connections import Connections
from tuner.store.entries import entries
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.workload.layers import LayerGroup, Workload

MACHINES, PROBLEMS = 50, 500
"""Identities, and problems of each that are settled and have a winner."""
BATCH = 5000
PASSES = 9
_BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)

CONFIGS = [CpuConfig("stream", "avx2", 1, 16 * (1 + i), 128, 1, 0, 1) for i in range(40)]


def identities() -> list[Identity]:
    """The machines that the evidence is of."""
    return [replace(IDENTITY, device=replace(DEVICE, threads=1 + i)) for i in range(MACHINES)]


def problems() -> list[Problem]:
    """What was tuned on each machine."""
    return [
        Problem("int4g128", n=1024 * (1 + i // 10), k=4096, m=4 ** (i % 10))
        for i in range(PROBLEMS)
    ]


def fill(url: str, count: int) -> float:
    """Writes `count` measurements, with a winner and a settled row for each machine and problem;
    seconds that it took."""
    open_store(url).close()
    connections = Connections(parse(url))
    start = time.monotonic()

    def write(table: Table, values: Iterator[dict[str, Any]]) -> None:
        while batch := list(islice(values, BATCH)):
            connections.write(partial(_insert, table=table, values=batch))

    write(schema.devices, (rows.device_values(i.device) for i in identities()))
    write(schema.identities, (rows.identity_values(i) for i in identities()))
    write(schema.problems, (rows.problem_values(p) for p in problems()))
    write(schema.configs, (rows.config_values(c) for c in CONFIGS))
    write(schema.measurements, _measurements(count))
    write(schema.settled, _settled())
    write(schema.winners, _winners())
    if parse(url).kind == "postgresql":  # what its autovacuum does a minute later
        connections.write(lambda c: c.execute(text("ANALYZE")).close())
    connections.close()
    return time.monotonic() - start


def _insert(connection: Connection, table: Table, values: list[dict[str, Any]]) -> None:
    connection.execute(insert(table), values)


def _keys() -> list[tuple[str, str]]:
    return [(i.id, p.id) for i in identities() for p in problems()]


def _measurements(count: int) -> Iterator[dict[str, Any]]:
    keys, names = _keys(), [config_id(config) for config in CONFIGS]
    for index in range(count):
        identity, problem = keys[index % len(keys)]
        ok = index % 500 != 7
        us = 100.0 + index % 997
        when = _BEGIN + timedelta(seconds=index)
        yield {
            "id": f"{index:032x}",
            "identity_id": identity,
            "problem_id": problem,
            "config_id": names[index // len(keys) % len(names)],
            "nonce": f"{index:032x}",
            "kind": "candidate",
            "outcome": "ok" if ok else "crashed",
            "us": us if ok else None,
            "samples": [us] * 9 if ok else [],
            "error": 0.1 if ok else None,
            "detail": "" if ok else "the worker died by SIGSEGV",
            "compile_s": 0.7,
            "started_at": when,
            "finished_at": when,
            "host": "made up",
            "pid": 1,
            "device_uuid": None,
            "conditions": {"load": 0.1, "waited": 0.0},
        }


def _settled() -> Iterator[dict[str, Any]]:
    for index, (identity, problem) in enumerate(_keys()):
        keys = {"identity_id": identity, "problem_id": problem}
        yield {
            "id": f"{index:032x}",
            "reason": "rule",
            "measured": 40,
            "settled_at": _BEGIN,
            **keys,
        }


def _winners() -> Iterator[dict[str, Any]]:
    for index, (identity, problem) in enumerate(_keys()):
        figures = dict.fromkeys(("us", "heuristic_us", "torch_us", "limit_us"), 100.0)
        yield {
            "id": f"{index:032x}",
            "identity_id": identity,
            "problem_id": problem,
            "config_id": config_id(CONFIGS[index % len(CONFIGS)]),
            **figures,
            "ratio_low": 0.9,
            "ratio_high": 0.95,
            "promoted_at": _BEGIN,
            "evidence": {"serves": [0, M_END], "rounds_us": {"a": [100.0] * 12, "b": [110.0] * 12}},
        }


def ask(url: str) -> dict[str, Any]:
    """Milliseconds, as least, median and most over PASSES, of each question that tuning and serving
    put to the database, connections open."""
    machine, problem = identities()[MACHINES // 2], problems()[PROBLEMS // 2]
    with open_store(url) as store:
        tuned = _tuned(machine)
        wanted = [*(task.problem for task in tuned.tasks), Problem("int8", n=64, k=64, m=1)]
        questions: dict[str, Callable[[], object]] = {
            "table of a machine": lambda: entries(store.winners(machine)),
            "report of a model of 500 problems": lambda: to_json(tuned, store),
            "settled of a machine": lambda: store.settled(machine),
            "quarantined of a machine": lambda: store.quarantined(machine),
            "trials of a problem": lambda: store.measurements(machine, problem),
            "lease of the next problem": lambda: _lease(store, machine, wanted),
        }
        found = {name: _ms(question) for name, question in questions.items()}
        assert len(entries(store.winners(machine))) == PROBLEMS // 10
        assert len(store.settled(machine)) == PROBLEMS
        start = time.monotonic()
        tables.publish(store, tables_dir(url))
        found["publish the table of all machines"] = _one(start)
    start = time.monotonic()
    assert tables.resolve(url) is not None
    found["resolve the table of all machines, from opening on"] = _one(start)
    return found


def _lease(store: Store, machine: Identity, wanted: list[Problem]) -> None:
    held = store.lease(machine, wanted, 60)
    assert held is not None
    store.release(held)


def _ms(question: Callable[[], object]) -> dict[str, float]:
    taken = []
    for _ in range(PASSES):
        start = time.monotonic()
        question()
        taken.append(time.monotonic() - start)
    return _shown(taken)


def _one(start: float) -> dict[str, float]:
    return _shown([time.monotonic() - start])


def _shown(seconds: list[float]) -> dict[str, float]:
    sides = {"least_ms": min, "median_ms": statistics.median, "most_ms": max}
    return {name: round(1e3 * side(seconds), 1) for name, side in sides.items()}


def _tuned(machine: Identity) -> Tuned:
    candidates = Candidates({}, {}, CONFIGS[0])
    groups = {
        p.n: LayerGroup("dense", p.n, p.k, 1, None, None, p.format, (f"n{p.n}",))
        for p in problems()
    }
    tasks = [Task(groups[p.n], p, candidates, p.m, p.m + 1) for p in problems()]
    workload = Workload("made up", 1, "bf16", tuple(groups.values()), (), ())
    return Tuned(workload, machine, tasks, [], 0, None)


def size_bytes(url: str) -> int | None:
    """Bytes of the database's files."""
    address = parse(url)
    if address.path is not None:
        files = (Path(f"{address.path}{end}") for end in ("", "-wal", "-shm"))
        return sum(file.stat().st_size for file in files if file.exists())
    connections = Connections(address)
    size = text("SELECT pg_database_size(current_database())")
    try:
        return connections.read(lambda c: c.execute(size).scalar())
    finally:
        connections.close()
