"""A server that leaves and comes back: tuning goes on into the journal, which is merged then, and
the last table serves meanwhile. Crashes that are over within seconds are test_store_crowd.py."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import func, select
from store_samples import CONFIG, HERE, OTHER, PROBLEM, draft

from benchmarks.store_server import Server
from humming.dispatch.sources import load_table
from humming.errors import StoreAwayError
from tuner.store import connections, failover, schema
from tuner.store.failover import Failover, journal_of, open_for_tuning
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import publish

TWO, THREE = PROBLEM.at(2), PROBLEM.at(3)


@pytest.fixture
def server_url(
    own_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[str]:
    """An empty database of a running server; little patience with it."""
    own_server.start()
    with psycopg.connect(own_server.url, autocommit=True) as server:
        server.execute('DROP DATABASE IF EXISTS "tuning" WITH (FORCE)')
        server.execute('CREATE DATABASE "tuning"')
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(connections.PATIENCE_S, "postgresql", 0.2)
    monkeypatch.setattr(failover, "RETRY_S", 0.2)
    yield own_server.url.replace("/postgres?", "/tuning?")
    own_server.start()


def _tune(store: Store, m: int) -> str:
    which = PROBLEM.at(m)
    held = store.lease(HERE, [which], 60)
    assert held is not None
    store.keep_at_hand(HERE, which)
    made = store.finish(store.begin(HERE, which, CONFIG), draft(problem=which))
    store.promote(HERE, which, CONFIG, us=1.0, heuristic_us=2.0)
    store.settle(HERE, which, "rule", 1)
    store.release(held)
    return made.id


def _rows(url: str) -> dict[str, int]:
    with open_store(url, write=False) as store:
        count = {t: select(func.count()).select_from(t) for t in schema.metadata.sorted_tables}
        return store.connections.read(
            lambda c: {t.name: c.execute(query).scalar_one() for t, query in count.items()}
        )


def test_tuning_goes_on_and_is_merged_when_the_server_is_back(
    server_url: str, own_server: Server
) -> None:
    notes: list[str] = []
    with open_for_tuning(server_url, notes.append) as store:
        first = _tune(store, 1)
        begun = store.begin(HERE, TWO, CONFIG)
        store.keep_at_hand(HERE, PROBLEM)
        store.keep_at_hand(HERE, TWO)
        own_server.crash()
        assert [past.id for past in store.measurements(HERE, PROBLEM)] == [first]
        assert "tuning goes on into" in notes[0] and len(notes) == 1
        assert store.settled(HERE).keys() == {PROBLEM.id}
        second = store.finish(begun, draft(problem=TWO)).id
        assert store.lease(HERE, [PROBLEM, THREE], 60) is not None  # PROBLEM is settled
        third = _tune(store, 4)
        assert {w.problem.m for w in store.winners(HERE)} == {1, 4}
        own_server.start()
        time.sleep(0.3)
        fourth = _tune(store, 5)
        assert "merged" in notes[1] and len(notes) == 2
        assert {p.id for p in store.measurements(HERE)} == {first, second, third, fourth}
        assert store.suspects(HERE) == {}
    found = _rows(server_url)
    assert (found["measurements"], found["winners"], found["settled"]) == (4, 3, 3)
    assert found["in_flight"] == 0
    assert _rows(str(journal_of(server_url)))["in_flight"] == 0


def test_who_starts_while_the_server_is_away_goes_on_where_it_was_used_before(
    server_url: str, own_server: Server
) -> None:
    own_server.crash()
    with pytest.raises(StoreAwayError, match="cannot reach"):
        open_for_tuning(server_url, print)
    own_server.start()
    open_for_tuning(server_url, print).close()
    own_server.crash()
    with open_for_tuning(server_url, lambda text: None) as store:
        made = _tune(store, 1)
    own_server.start()
    notes: list[str] = []
    with open_for_tuning(server_url, notes.append) as store:
        assert [past.id for past in store.measurements(HERE)] == [made]
    assert len(notes) == 1 and "merged" in notes[0]
    with open_for_tuning(server_url, notes.append) as store:
        assert len(store.winners(HERE)) == len(notes) == 1


def _begin_and_die(url: str) -> None:
    store = open_for_tuning(url, lambda text: None)
    store.begin(HERE, PROBLEM, OTHER)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_crash_during_an_outage_leaves_its_suspect(server_url: str, own_server: Server) -> None:
    open_for_tuning(server_url, print).close()
    own_server.crash()
    child = multiprocessing.get_context("fork").Process(target=_begin_and_die, args=(server_url,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    own_server.start()
    with open_for_tuning(server_url, print) as store:
        assert list(store.suspects(HERE).values()) == [1]


def test_what_was_written_in_the_moment_of_leaving_stands_once(
    server_url: str, own_server: Server
) -> None:
    """The server committed a trial, but its answer was lost: it is in the journal too, later."""
    with open_for_tuning(server_url, print) as store:
        ticket = store.begin(HERE, PROBLEM, CONFIG)
        store.finish(ticket, draft())
        connections = store.connections
        assert isinstance(connections, Failover)
        connections.leave(StoreAwayError("away"))
        store.finish(ticket, draft())
        time.sleep(0.3)
        assert len(store.measurements(HERE)) == 1
        assert not connections.away
    assert _rows(server_url)["measurements"] == 1


def test_the_last_table_serves_while_the_server_is_away(
    server_url: str, own_server: Server, tmp_path: Path
) -> None:
    from humming.settings import tables_dir

    folder = tables_dir(server_url)
    with open_for_tuning(server_url, lambda text: None) as store:
        _tune(store, 1)
        table = publish(store, folder)
        own_server.crash()
        _tune(store, 2)
        with pytest.raises(StoreAwayError):
            publish(store, folder)
        with pytest.warns(RuntimeWarning, match="its last table serves"):
            serving = load_table(server_url)
        assert table is not None and serving is not None and serving.id == table.id
        own_server.start()
        time.sleep(0.3)
        _tune(store, 3)
        after = publish(store, folder)
    assert after is not None and len(after.entries[0].intervals) == 3


def test_a_file_needs_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    with open_for_tuning(str(tmp_path / "x.db"), print) as store:
        assert not isinstance(store.connections, Failover)
        store.keep_at_hand(HERE, PROBLEM)
    assert not (tmp_path / "data").exists()
