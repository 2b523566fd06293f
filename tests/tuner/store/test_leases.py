"""Leases: one holder a problem, whoever asks; what is settled, lost or run out, by the database's
clock.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import select, update
from store_samples import HERE, PROBLEM

from tuner.store import schema
from tuner.store.open import open_store
from tuner.store.store import Store

MANY = [PROBLEM.at(m) for m in range(1, 41)]


def test_one_lease_at_a_time(url: str) -> None:
    with open_store(url) as ours, open_store(url) as theirs:
        held = ours.lease(HERE, [PROBLEM], 60)
        assert held is not None and theirs.lease(HERE, [PROBLEM], 60) is None
        assert theirs.lease(HERE, [PROBLEM, PROBLEM.at(2)], 60) is not None
        assert ours.leased(HERE) == {PROBLEM.id, PROBLEM.at(2).id}
        longer = ours.renew(held, 120)
        assert longer is not None and longer.expires_at > held.expires_at
        ours.release(held)
        taken = theirs.lease(HERE, [PROBLEM], 60)
        assert taken is not None and ours.renew(held, 60) is None
        ours.release(held)
        assert theirs.renew(taken, 60) is not None


def test_the_first_that_is_neither_settled_nor_held(store: Store) -> None:
    one, two, three = MANY[:3]
    store.settle(HERE, one, "rule", 20)
    first, second = (store.lease(HERE, MANY[:3], 60) for _ in range(2))
    assert first is not None and first.problem_id == two.id
    assert second is not None and second.problem_id == three.id
    assert store.lease(HERE, MANY[:3], 60) is None
    store.unsettle(HERE, one)
    again = store.lease(HERE, MANY[:3], 60)
    assert again is not None and again.problem_id == one.id


def test_what_was_settled_before_a_run_began_can_be_searched_on_in_it(store: Store) -> None:
    store.settle(HERE, PROBLEM, "budget", 20)
    begun = store.clock()
    assert store.lease(HERE, [PROBLEM], 60) is None
    assert store.settled(HERE, begun) == {}
    assert store.lease(HERE, [PROBLEM], 60, since=begun) is not None
    store.settle(HERE, PROBLEM, "rule", 40)
    assert list(store.settled(HERE, begun)) == [PROBLEM.id]


@pytest.mark.parametrize(
    "gone",
    [
        {"expires_at": datetime(2020, 1, 1, tzinfo=timezone.utc)},
        {"process_started": "another boot:1"},
    ],
)
def test_a_lease_that_ran_out_or_lost_its_holder_is_taken_over(
    store: Store, gone: dict[str, object]
) -> None:
    held = store.lease(HERE, [PROBLEM], 60)
    store._connections.write(lambda c: c.execute(update(schema.leases).values(**gone)))
    assert store.leased(HERE) == set()
    assert held is not None and store.lease(HERE, [PROBLEM], 60) is not None
    assert store.renew(held, 60) is None


def test_a_holder_in_another_container_of_this_host_keeps_it_to_the_end(store: Store) -> None:
    held = store.lease(HERE, [PROBLEM], 60)
    elsewhere = update(schema.leases).values(process_started="a boot:1 in pid:[1]", holder="x")
    store._connections.write(lambda c: c.execute(elsewhere).close())
    assert held is not None and store.lease(HERE, [PROBLEM], 60) is None
    old = update(schema.leases).values(expires_at=datetime(2020, 1, 1, tzinfo=timezone.utc))
    store._connections.write(lambda c: c.execute(old).close())
    assert store.lease(HERE, [PROBLEM], 60) is not None


def test_it_ends_by_the_clock_of_the_database(store: Store) -> None:
    held = store.lease(HERE, [PROBLEM], 60)
    assert held is not None
    assert abs(held.expires_at - store.clock() - timedelta(seconds=60)) < timedelta(seconds=20)
    assert store.lease(HERE, [PROBLEM.at(2)], 0.05) is not None
    time.sleep(0.1)
    assert store.leased(HERE) == {PROBLEM.id}


def test_of_many_who_ask_at_once_each_gets_its_own(url: str) -> None:
    with open_store(url) as store:
        barrier = threading.Barrier(8)

        def ask(_: int) -> list[str]:
            barrier.wait()
            found = []
            while held := store.lease(HERE, MANY, 60):
                found.append(held.problem_id)
            return found

        with ThreadPoolExecutor(8) as pool:
            given = [problem for found in pool.map(ask, range(8)) for problem in found]
        assert sorted(given) == sorted(problem.id for problem in MANY)


def test_a_problem_is_settled_once_by_many_who_release_what_they_settled(url: str) -> None:
    with open_store(url) as store:

        def work(_: int) -> int:
            done = 0
            while held := store.lease(HERE, MANY, 60):
                problem = next(p for p in MANY if p.id == held.problem_id)
                store.settle(HERE, problem, "rule", 1)
                store.release(held)
                done += 1
            return done

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(work, range(6))) == len(MANY)
        assert len(store.settled(HERE)) == len(MANY)
        rows = store._connections.read(lambda c: len(c.execute(select(schema.settled)).all()))
        assert rows == len(MANY)


def test_who_takes_over_waits_for_nobody_who_is_doing_so(postgres_url: str) -> None:
    with open_store(postgres_url) as ours, open_store(postgres_url) as theirs:
        assert ours.lease(HERE, [PROBLEM], 0) is not None

        def meanwhile(connection: object) -> object:
            connection.execute(select(schema.leases).with_for_update())  # type: ignore[attr-defined]
            return theirs.lease(HERE, [PROBLEM, PROBLEM.at(2)], 60)

        held = ours._connections.write(meanwhile)
        assert held is not None and held.problem_id == PROBLEM.at(2).id  # type: ignore[attr-defined]
