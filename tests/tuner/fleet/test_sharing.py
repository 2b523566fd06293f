"""Problems shared by leases: each is settled once, by whoever asks first, and what a dead process
left is taken over. Members as processes are test_local_crew.py."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from humming.jit.detect import cpu_device
from humming.jit.identity import here
from search_spaces.load import load_spaces
from tuner.fleet import sharing
from tuner.fleet.sharing import share_out
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task, make_tasks
from tuner.store.open import open_store
from tuner.store.schema import leases
from tuner.store.store import Store
from tuner.workload.layers import LayerGroup, Workload

DEVICE = cpu_device(1)
HERE = here(DEVICE)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    groups = tuple(
        LayerGroup("dense", 32 * n, 64, 1, None, None, "int8", (f"layer{n}",)) for n in range(1, 7)
    )
    return make_tasks(Workload("tiny", 1, "fp32", groups, (), ()), (1,), DEVICE, load_spaces())[0]


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "x.db")) as opened:
        yield opened


def _share(
    tasks: list[Task], store: Store, done: list[str], since: datetime | None = None, **how: object
) -> list[str]:
    notes: list[str] = []

    def settle(task: Task, share: Budget) -> None:
        done.append(task.problem.id)
        if how.get("settles", True):
            store.settle(HERE, task.problem, "rule", 1)

    budget = Budget(how.get("seconds"))  # type: ignore[arg-type]
    share_out(tasks, HERE, store, budget, since, settle, notes.append)
    return notes


def test_several_at_once_settle_each_problem_once(tasks, store, monkeypatch) -> None:
    monkeypatch.setattr(sharing, "POLL_S", 0.01)
    done: list[str] = []
    threads = [threading.Thread(target=_share, args=(tasks, store, done)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(task.problem.id for task in tasks)
    assert store.leased(HERE) == set() and len(store.settled(HERE)) == len(tasks)


def test_it_begins_with_the_first_and_leaves_what_is_settled(tasks, store) -> None:
    store.settle(HERE, tasks[0].problem, "rule", 1)
    done: list[str] = []
    assert _share(tasks, store, done) == []
    assert done == [task.problem.id for task in tasks[1:]]


def test_a_run_that_searches_on_tries_each_problem_once(tasks, store) -> None:
    for task in tasks[:2]:
        store.settle(HERE, task.problem, "rule", 1)
    done: list[str] = []
    _share(tasks, store, done, since=store.clock())
    assert done == [task.problem.id for task in tasks]


def test_what_cannot_be_settled_is_tried_once_and_given_back(tasks, store) -> None:
    done: list[str] = []
    _share(tasks, store, done, settles=False)
    assert done == [task.problem.id for task in tasks]
    assert store.leased(HERE) == set()


def test_what_the_rest_left_over_goes_to_searches_that_were_cut(tasks, store) -> None:
    """A share ends before its search where compiling took it; one that got nowhere is left."""
    done: list[str] = []

    def settle(task: Task, share: Budget) -> None:
        done.append(task.problem.id)
        again = done.count(task.problem.id)
        cut = task in tasks[:3] and again < 3
        store.settle(HERE, task.problem, "budget" if cut else "rule", int(task != tasks[2]))

    share_out(tasks, HERE, store, Budget(60.0), None, settle, print)
    first, second, *others = [task.problem.id for task in tasks]
    assert done == [first, second, *others, first, second, first, second]
    assert store.settled(HERE)[first].reason == "rule"


def test_an_error_gives_the_lease_back(tasks, store) -> None:
    def fail(task: Task, share: Budget) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share_out(tasks, HERE, store, Budget(None), None, fail, print)
    assert store.leased(HERE) == set()


def test_what_another_tunes_is_waited_for_and_taken_over_when_its_lease_ends(
    tasks, store, monkeypatch
) -> None:
    monkeypatch.setattr(sharing, "POLL_S", 0.02)
    theirs = store.lease(HERE, [tasks[0].problem], 60)
    assert theirs is not None
    done: list[str] = []
    notes: list[str] = []

    def told(text: str) -> None:
        notes.append(text)
        ended = update(leases).values(expires_at=store.clock())
        store.connections.write(lambda c: c.execute(ended).close())

    def settle(task: Task, share: Budget) -> None:
        done.append(task.problem.id)
        store.settle(HERE, task.problem, "rule", 1)

    share_out(tasks[:2], HERE, store, Budget(None), None, settle, told)
    assert done == [tasks[1].problem.id, tasks[0].problem.id]
    assert notes == ["1 problem is being tuned by others; waiting"]
    assert store.renew(theirs, 1) is None


def test_the_budget_ends_the_waiting(tasks, store) -> None:
    assert store.lease(HERE, [tasks[0].problem], 60) is not None
    done: list[str] = []
    _share(tasks[:1], store, done, seconds=0.2)
    assert done == []


def test_a_lease_is_kept_for_as_long_as_the_work_lasts(tasks, store, monkeypatch) -> None:
    monkeypatch.setattr(sharing, "LEASE_S", 1.5)
    seen: list[set[str]] = []

    def slowly(task: Task, share: Budget) -> None:
        threading.Event().wait(2.5)
        seen.append(store.leased(HERE))
        store.settle(HERE, task.problem, "rule", 1)

    share_out(tasks[:1], HERE, store, Budget(None), None, slowly, print)
    assert seen == [{tasks[0].problem.id}]
