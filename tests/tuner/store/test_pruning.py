"""What prune takes and what it never takes, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, delete, func, insert, select, update
from store_samples import CONFIG, GPU, HERE, OTHER, PROBLEM, draft, identity

from tuner.store import evidence
from tuner.store.moving import merging
from tuner.store.moving.bundle import read_bundle
from tuner.store.moving.pruning import prune
from tuner.store.open import open_store
from tuner.store.schema import configs, devices, identities, leases, ledger, measurements, problems
from tuner.store.store import Store

LATER = datetime.now(timezone.utc) + timedelta(days=2)
GONE = identity(replace(GPU, name="A card that was sold"))


def count(store: Store) -> list[int]:
    tables = (devices, identities, problems, configs)
    return [
        store.connections.read(
            lambda c, t=t: c.execute(select(func.count()).select_from(t)).scalar_one()  # type: ignore[misc]
        )
        for t in tables
    ]


def test_what_serves_crashed_or_runs_stays(store: Store) -> None:
    served = store.finish(None, draft())
    crashed = store.finish(None, draft(outcome="crashed", config=OTHER))
    winner = store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=1.0)
    store.settle(HERE, PROBLEM, "rule", 2)
    ticket = store.begin(HERE, PROBLEM.at(64), OTHER)
    pruned = prune(store, LATER)
    assert not +pruned.rows
    assert [one.id for one in store.measurements(HERE)] == [served.id, crashed.id]
    assert store.winners() == [winner] and PROBLEM.id in store.settled(HERE)
    assert store.quarantined(HERE) == {(PROBLEM.id, crashed.config_id)}
    store.finish(ticket, draft(problem=PROBLEM.at(64), config=OTHER))


def test_what_is_old_and_of_no_use_goes_with_all_that_only_it_refers_to(
    store: Store, url: str
) -> None:
    store.finish(None, draft(identity=GONE, config=OTHER, problem=PROBLEM.at(8)))
    store.finish(None, draft())
    store.settle(HERE, PROBLEM, "budget", 1)
    store.settle(HERE, PROBLEM, "rule", 2)
    store.promote(HERE, PROBLEM, OTHER, us=2.0, heuristic_us=2.0)
    store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
    assert count(store) == [2, 2, 2, 2]
    before = datetime.now(timezone.utc) - timedelta(days=1)
    assert not +prune(store, before).rows
    with open_store(url, write=False) as reader:  # a dry run needs no right to write
        would = prune(reader, LATER, dry_run=True)
    assert count(store) == [2, 2, 2, 2]
    done = prune(store, LATER)
    assert done == would and +done.rows == {
        "measurements": 1,
        "winners": 1,
        "settled": 1,
        **dict.fromkeys(("devices", "identities", "problems", "configs"), 1),
    }
    assert count(store) == [1, 1, 1, 1]
    assert store.settled(HERE)[PROBLEM.id].reason == "rule"


def test_generations_that_a_name_names_or_named_lately_stay(store: Store) -> None:
    for number in "abc":
        store.generations.add(number * 32, 0, b"{}", "current")
    store.generations.name("prod", "a" * 32)
    assert not prune(store, datetime.now(timezone.utc) - timedelta(days=1)).generations
    assert prune(store, LATER).generations == ("b" * 32,)
    assert {one.id[0]: one.names for one in store.generations.list()} == {
        "a": ("prod",),
        "c": ("current",),
    }


def test_traffic_that_nothing_reads_and_leases_that_ran_out_go(store: Store) -> None:
    store.finish(None, draft())
    assert store.lease(HERE, [PROBLEM.at(m) for m in (2,)], 60.0) is not None
    time = datetime.now(timezone.utc)
    counts = {"process": "host:1:", "calls": 1, "misses": 0, "since": time}
    keys = {"identity_id": HERE.id, "problem_id": PROBLEM.id}

    def add(connection: Connection) -> None:
        for days in (1, 29, 31, 100):
            row = {"id": f"{days:032}", "until": time - timedelta(days=days), **keys, **counts}
            connection.execute(insert(ledger).values(row))

    store.connections.write(add)
    day = timedelta(days=1)
    assert prune(store, time - 90 * day).rows["ledger"] == 1
    assert +prune(store, time).rows == {"ledger": 1, "measurements": 1, "configs": 1}
    store.connections.write(lambda c: c.execute(update(leases).values(expires_at=time)).close())
    assert +prune(store, LATER, dry_run=True).rows == {"leases": 1, "problems": 1}
    assert prune(store, time).rows["leases"] == 0


def test_the_generation_that_is_pinned_stays(store: Store) -> None:
    for number in "abc":
        store.generations.add(number * 32, 0, b"{}", "current")
    assert prune(store, LATER, pinned="a" * 32).generations == ("b" * 32,)
    assert [one.id[0] for one in store.generations.list()] == ["a", "c"]


def test_a_launch_whose_config_is_pruned_meanwhile_is_written_all_the_same(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(postgres_url) as store, open_store(postgres_url) as other:
        store.finish(None, draft(problem=PROBLEM.at(8)))
        pruned: list[bool] = []
        real = evidence.process.stamp

        def stamp() -> dict[str, Any]:
            """Prunes once, between the insert of the config and that of the launch."""
            if not pruned:
                pruned.append(True)
                assert prune(other, LATER).rows["configs"] == 1
            return real()

        monkeypatch.setattr(evidence.process, "stamp", stamp)
        store.begin(HERE, PROBLEM.at(8), CONFIG)
        assert pruned and count(store) == [1, 1, 1, 1]


def test_a_merge_whose_configs_are_pruned_meanwhile_loses_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(str(tmp_path / "other.db")) as other:
        for m in (1, 2, 3):
            other.finish(None, draft(problem=PROBLEM.at(m)))
        merging.export(other.connections, tmp_path / "bundle")
    monkeypatch.setattr(merging, "_BATCH", 1)
    monkeypatch.setattr(merging, "_ROWS_A_TRANSACTION", 1)
    passes: list[None] = []

    def forget(connection: Connection) -> None:
        connection.execute(delete(configs))

    def rows() -> Iterator[tuple[Any, Any]]:
        passes.append(None)
        seen = set()
        for name, values in read_bundle(tmp_path / "bundle"):
            if name == "measurements" not in seen and len(passes) == 2:
                store.connections.write(forget)
            seen.add(name)
            yield name, values

    merged = merging.merge(store.connections, rows)
    assert len(passes) == 3 and merged.added["measurements"] == 3
    count = select(func.count()).select_from(measurements)
    assert store.connections.read(lambda c: c.execute(count).scalar_one()) == 3
