"""Many processes on one database, killed at random, with the server crashed under them: nothing is
lost, repeated or refused. The counts of the record are those of `python -m benchmarks.store`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from store_samples import CONFIG, HERE, PROBLEM, draft

from benchmarks.store_crowd import crowd
from benchmarks.store_server import Server, postgres_server
from tuner.store.open import open_store


def _all_there(found: dict[str, Any], kills: int = 0) -> None:
    assert found["errors"] == [], found
    assert (found["lost"], found["repeated"], found["in_flight_left"]) == (0, 0, 0), found
    assert found["kills"] >= kills


@pytest.fixture
def own_server() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


def _restart(server: Server, seconds: float) -> None:
    server.crash()
    time.sleep(seconds)
    server.start()


def test_a_few_processes_one_of_them_killed(url: str) -> None:
    _all_there(crowd(url, 2, 16, kills=1))


@pytest.mark.slow
def test_sixteen_processes_of_a_thousand_trials(url: str) -> None:
    _all_there(crowd(url, 16, 1000))


@pytest.mark.slow
def test_sixteen_processes_of_which_many_are_killed(url: str) -> None:
    _all_there(crowd(url, 16, 250, kills=16), kills=8)


@pytest.mark.slow
def test_sixteen_processes_whose_server_crashes(own_server: Server) -> None:
    found = crowd(own_server.url, 16, 250, kills=4, disturb=lambda: _restart(own_server, 3.0))
    _all_there(found, kills=1)


def test_an_open_store_goes_on_after_its_server_crashed(own_server: Server) -> None:
    with open_store(own_server.url) as store:
        store.finish(store.begin(HERE, PROBLEM, CONFIG), draft())
        back = threading.Thread(target=_restart, args=(own_server, 0.5))
        back.start()
        for m in range(2, 30):
            which = PROBLEM.at(m)
            store.finish(store.begin(HERE, which, CONFIG), draft(problem=which))
            assert len(store.measurements(HERE, which)) == 1
            if m > 3:
                back.join()
        assert len(store.measurements(HERE)) == 29
        assert store.suspects(HERE) == {}


def test_a_long_transaction_of_a_reader_stops_nobody(url: str) -> None:
    """Neither writers, leases, promotions nor another version's upgrade."""
    from tuner.store.migrate import upgrade

    with open_store(url) as reading, open_store(url) as writing:

        def slowly(connection: Any) -> None:
            if url.startswith("postgresql"):
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            count = text("SELECT count(*) FROM measurements")
            before = connection.execute(count).scalar()
            for m in range(1, 21):
                which = PROBLEM.at(m)
                held = writing.lease(HERE, [which], 60)
                assert held is not None
                writing.finish(writing.begin(HERE, which, CONFIG), draft(problem=which))
                writing.promote(HERE, which, CONFIG, us=1.0, heuristic_us=2.0)
                writing.settle(HERE, which, "rule", 1)
                writing.release(held)
            upgrade(url)
            assert connection.execute(count).scalar() == before == 0

        reader = reading._connections
        if url.startswith("postgresql"):
            with reader._reader.connect() as connection:  # its first statement sets the level
                slowly(connection)
        else:
            reader.read(slowly)
        assert len(writing.measurements(HERE)) == len(writing.settled(HERE)) == 20


def test_a_session_that_holds_a_lock_is_told_of_and_waited_for(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from humming.errors import StoreError
    from tuner.store import connections

    monkeypatch.setattr(connections, "LOCK_TIMEOUT_S", 1)
    with open_store(postgres_url) as store, psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE measurements IN ACCESS EXCLUSIVE MODE")
        monkeypatch.setitem(connections.PATIENCE_S, "postgresql", 0.1)
        with pytest.raises(StoreError, match=r"kept busy by another session \(.*lock timeout\)"):
            store.finish(None, draft())
        monkeypatch.setitem(connections.PATIENCE_S, "postgresql", 30.0)
        threading.Timer(1.5, other.rollback).start()
        store.finish(None, draft())
        assert len(store.measurements(HERE)) == 1
