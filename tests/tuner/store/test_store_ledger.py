"""Files of serving processes, taken into the database once, in any order; hostile ones are left
alone."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update
from store_samples import CPU, GPU, HERE, PROBLEM, identity

from humming.errors import StoreError
from tuner.store import schema
from tuner.store.ledger import Traffic, absorb, record, traffic
from tuner.store.open import open_store
from tuner.store.store import Store

NOW = datetime.now(timezone.utc)
COUNTS = ((PROBLEM, 5, 2), (PROBLEM.at(16), 3, 3))


def _file(
    folder: Path, process: int, counts: Any = COUNTS, machine: Any = HERE, **changes: Any
) -> Path:
    content: dict[str, Any] = {
        "schema": 1,
        "host": os.uname().nodename,
        "pid": process,
        "since": (NOW - timedelta(hours=1)).isoformat(),
        "until": NOW.isoformat(),
        "identities": {machine.id: asdict(machine)},
        "calls": [
            {"identity": machine.id, "problem": asdict(p), "calls": calls, "misses": misses}
            for p, calls, misses in counts
        ],
    }
    folder.mkdir(exist_ok=True)
    path = folder / f"{process}-{content['until']}-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps({**content, **changes}))
    return path


def _asked(store: Store, device: Any = CPU) -> dict[int, tuple[int, int]]:
    return {t.problem.m: (t.calls, t.misses) for t in traffic(store.connections, device)}


def test_processes_add_up_and_those_that_are_gone_leave_no_file(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    kept, left = _file(folder, os.getpid()), _file(folder, 2**22 + 1)
    assert absorb(store.connections, folder) == 4
    assert kept.exists() and not left.exists()
    assert _asked(store) == {1: (10, 4), 16: (6, 6)}
    assert absorb(store.connections, folder) == 2
    assert _asked(store) == {1: (10, 4), 16: (6, 6)}
    assert Traffic(PROBLEM, 10, 4) in traffic(store.connections, CPU)


def test_versions_of_one_device_add_up_and_other_devices_do_not(
    store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    _file(folder, 2**22 + 1)
    _file(folder, 2**22 + 2, machine=identity(source_hash="1" * 32))
    _file(folder, 2**22 + 3, machine=identity(GPU))
    absorb(store.connections, folder)
    assert _asked(store) == {1: (10, 4), 16: (6, 6)}
    assert _asked(store, GPU) == {1: (5, 2), 16: (3, 3)}
    assert _asked(store, replace(CPU, threads=1)) == {}


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(order=st.permutations(range(3)), repeats=st.integers(1, 2))
def test_the_largest_count_of_a_process_stands_in_whatever_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], repeats: int
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    with open_store(str(folder / "x.db")) as store:
        for step in itertools.chain(*[order] * repeats):
            part = folder / f"part{step}-{len(list(folder.iterdir()))}"
            _file(part, 2**22 + 1, ((PROBLEM, 10 * step + 1, step),))
            absorb(store.connections, part)
        assert _asked(store) == {1: (21, 2)}


def test_what_was_counted_long_ago_is_no_traffic(store: Store, tmp_path: Path) -> None:
    _file(tmp_path / "ledger", 2**22 + 1)
    absorb(store.connections, tmp_path / "ledger")
    old = update(schema.ledger).values(until=NOW - timedelta(days=40))
    store.connections.write(lambda c: c.execute(old).close())
    assert _asked(store) == {}


BAD: list[dict[str, Any]] = [
    {"schema": 2},
    {"calls": [{"identity": "x", "problem": {}, "calls": 1, "misses": 1}]},
    {"calls": [{"identity": HERE.id, "problem": asdict(PROBLEM), "calls": 1, "misses": 2}]},
    {"calls": [{"identity": HERE.id, "problem": asdict(PROBLEM), "calls": 2**63, "misses": 1}]},
    {"calls": [{"identity": HERE.id, "problem": asdict(PROBLEM), "calls": True, "misses": 0}]},
    {"calls": [{"identity": HERE.id, "problem": {"format": "int4g128"}, "calls": 1, "misses": 0}]},
    {"calls": "many"},
    {"identities": {HERE.id: 3}},
    {"since": "yesterday"},
    {"since": "2026-01-01T00:00:00"},
    {"pid": "mine"},
    {"host": None},
    {"host": "a\0b"},
    {"host": "a\ud800b"},
    {"identities": []},
    {"since": "0001-01-01T00:00:00+14:00"},
]


@pytest.mark.parametrize("change", BAD, ids=str)
def test_a_damaged_file_is_left_alone(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = tmp_path / "ledger"
    bad, good = _file(folder, 2**22 + 1, **change), _file(folder, 2**22 + 2)
    (folder / "a.json").write_bytes(b"\xff{")
    (folder / "b.json").write_text("[" * 100000)
    with open_store(str(tmp_path / "x.db")) as store:
        assert absorb(store.connections, folder) == 2
        assert _asked(store) == {1: (5, 2), 16: (3, 3)}
    assert bad.exists() and not good.exists()


def test_serving_hands_its_files_to_a_server_it_may_write(
    postgres_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "ledger"
    assert record(postgres_url, folder) == 0
    _file(folder, 2**22 + 1)
    with pytest.raises(StoreError, match="no tables yet"):
        record(postgres_url, folder)
    with open_store(postgres_url) as store:
        assert record(postgres_url, folder) == 2
        assert _asked(store) == {1: (5, 2), 16: (3, 3)}
        store.connections.write(lambda c: c.execute(delete(schema.ledger)).close())
    with psycopg.connect(postgres_url) as server:
        server.execute("DROP ROLE IF EXISTS counting")
        server.execute("CREATE ROLE counting LOGIN")
        server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO counting")
    kept = _file(folder, 2**22 + 1)
    try:
        with pytest.raises(StoreError, match="may not be changed by this role"):
            record(postgres_url.replace("postgres:@", "counting:@"), folder)
    finally:
        with psycopg.connect(postgres_url) as server:
            server.execute("DROP OWNED BY counting")
            server.execute("DROP ROLE counting")
    assert kept.exists()
