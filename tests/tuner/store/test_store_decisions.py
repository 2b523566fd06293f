"""What follows from evidence: settled problems, winners, leases, and the table they become."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import update
from store_samples import CONFIG, GPU, HERE, OTHER, PROBLEM, identity

from humming.dispatch.tables import read_table
from humming.errors import StoreError
from humming.settings import tables_dir
from tuner.store import process, schema, tables
from tuner.store.entries import entries
from tuner.store.open import open_store
from tuner.store.store import Store


def test_a_problem_is_settled_until_it_is_unsettled(store: Store) -> None:
    assert store.settled(HERE) == {}
    first = store.settle(HERE, PROBLEM, "budget", 12)
    assert store.settled(HERE) == {PROBLEM.id: first}
    second = store.settle(HERE, PROBLEM, "exhausted", 40)
    assert store.settled(HERE) == {PROBLEM.id: second} and second.measured == 40
    store.unsettle(HERE, PROBLEM)
    store.unsettle(HERE, PROBLEM)
    assert store.settled(HERE) == {}
    third = store.settle(HERE, PROBLEM, "rule", 41)
    assert store.settled(HERE) == {PROBLEM.id: third}


def test_another_identity_has_settled_nothing(store: Store) -> None:
    store.settle(HERE, PROBLEM, "rule", 3)
    assert store.settled(identity(driver="new")) == {}


def test_only_known_reasons_settle(store: Store) -> None:
    for reason in ("bored", "reopened"):
        with pytest.raises(ValueError, match="reason must be one of"):
            store.settle(HERE, PROBLEM, reason, 1)  # type: ignore[arg-type]


def test_the_latest_promotion_serves(store: Store) -> None:
    proof = {"measurements": ["a", "b"], "rounds": 7}
    store.promote(HERE, PROBLEM, OTHER, us=900.0, heuristic_us=1000.0)
    latest = store.promote(
        HERE,
        PROBLEM,
        CONFIG,
        us=812.25,
        heuristic_us=1000.5,
        torch_us=4200.0,
        limit_us=600.0,
        ratio_low=0.78,
        ratio_high=0.84,
        evidence=proof,
    )
    assert store.winners() == store.winners(HERE) == [latest]
    assert latest.config == CONFIG and latest.evidence == {**proof, "host": process.host()}


def test_a_clock_that_goes_back_hides_no_promotion(store: Store) -> None:
    store.promote(HERE, PROBLEM, OTHER, us=900.0, heuristic_us=1000.0)
    ahead = datetime.now(timezone.utc) + timedelta(days=30)
    store._connections.write(lambda c: c.execute(update(schema.winners).values(promoted_at=ahead)))
    latest = store.promote(HERE, PROBLEM, CONFIG, us=800.0, heuristic_us=1000.0)
    assert latest.promoted_at > ahead and store.winners() == [latest]


def test_identities_come_back_whole(store: Store) -> None:
    gpu = identity(GPU, driver="570.1", compiler="nvrtc", compiler_version="12.8")
    store.promote(gpu, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
    store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
    assert {w.identity.id for w in store.winners()} == {gpu.id, HERE.id}
    assert {w.identity.device.uuid for w in store.winners()} == {None}
    assert store.winners(gpu)[0].identity.device.compute_capability == (9, 0)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_figure_that_is_no_time_is_refused(store: Store, wrong: float) -> None:
    with pytest.raises(ValueError, match="0 < torch_us < inf"):
        store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0, torch_us=wrong)
    assert store.winners() == []


def test_winners_become_entries_of_a_table(store: Store) -> None:
    for m in (1, 16, 256):
        store.promote(HERE, PROBLEM.at(m), CONFIG, us=float(m), heuristic_us=m + 1.0)
    store.promote(identity(GPU), PROBLEM, OTHER, us=1.0, heuristic_us=2.0)
    found = {entry.identity.id: entry for entry in entries(store.winners())}
    ours = found[HERE.id]
    assert ours.problem == PROBLEM.at(0) and len(found) == 2
    assert [(i.m, i.us, i.heuristic_us) for i in ours.intervals] == [
        (1, 1.0, 2.0),
        (16, 16.0, 17.0),
        (256, 256.0, 257.0),
    ]
    records = {w.problem.m: w.id for w in store.winners(HERE)}
    assert all(i.m_low <= i.m < i.m_high and i.record == records[i.m] for i in ours.intervals)
    assert len(entries(store.winners(HERE))) == 1


def test_a_url_resolves_to_a_table_file(url: str) -> None:
    assert tables.resolve(url) is None
    with open_store(url) as store:
        assert tables.resolve(url) is None
        store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
    path = tables.resolve(url)
    assert path is not None and path == tables.resolve(url)
    assert read_table(path).entries[0].intervals[0].config == CONFIG
    assert path.parent == tables_dir(url)


def test_a_database_opened_for_reading_is_only_read(url: str, tmp_path: Path) -> None:
    with open_store(url) as store:
        store.settle(HERE, PROBLEM, "rule", 3)
    with open_store(url, write=False) as reader:
        assert list(reader.settled(HERE)) == [PROBLEM.id]
        with pytest.raises(StoreError, match="for reading only"):
            reader.unsettle(HERE, PROBLEM)
