"""Problems one by one, each leased, so that all who tune the same thing at once share it instead of
repeating it. How a problem is settled is pipeline.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime

from humming.errors import StoreError
from humming.spec.identity import Identity
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task
from tuner.planning.weights import weights
from tuner.store.records import Lease, Settled
from tuner.store.store import Store

LEASE_S = 60.0
"""After this long without a renewal someone else takes a problem over."""
POLL_S = 1.0


def share_out(
    tasks: Sequence[Task],
    identity: Identity,
    store: Store,
    budget: Budget,
    since: datetime | None,
    settle: Callable[[Task, Budget], None],
    note: Callable[[str], None],
) -> None:
    """Calls `settle(task, its time)` for each of `tasks` that can be leased, the first ones first;
    then again for those whose share ended before their search did, with what others left over.

    Ends when all are settled, by whomever, or were tried here, or the budget is over: what another
    process tunes is waited for, and taken over where its lease runs out.
    """
    while tasks and not budget.over:
        _share_out_once(tasks, identity, store, budget, since, settle, note)
        ended = store.settled(identity, since)
        tasks = [task for task in tasks if _was_cut(ended.get(task.problem.id))]
        since = store.clock()


def _was_cut(ended: Settled | None) -> bool:
    """Whether the time of a search ended while it got on."""
    return ended is not None and ended.reason == "budget" and ended.measured > 0


def _share_out_once(
    tasks: Sequence[Task],
    identity: Identity,
    store: Store,
    budget: Budget,
    since: datetime | None,
    settle: Callable[[Task, Budget], None],
    note: Callable[[str], None],
) -> None:
    left, told = list(tasks), False
    worth = weights(tasks, store.winners(identity))
    while left and not budget.over:
        held = store.lease(identity, [task.problem for task in left], LEASE_S, since)
        if held is None:
            settled = store.settled(identity, since)
            left = [task for task in left if task.problem.id not in settled]
            if left and not told:
                are = "problem is" if len(left) == 1 else "problems are"
                note(f"{len(left)} {are} being tuned by others; waiting")
                told = True
            if left:
                time.sleep(min(POLL_S, budget.left_s()))
            continue
        with _kept(store, held):
            others = len(store.leased(identity) - {held.problem_id})
            ours = (len(left) - others) / len(left) / (others + 1)
            waiting = sum(worth[task.problem.id] for task in left) * max(0.0, ours)
            task = next(task for task in left if task.problem.id == held.problem_id)
            left.remove(task)
            settle(task, budget.share(worth[held.problem_id], waiting))


@contextmanager
def _kept(store: Store, held: Lease) -> Iterator[None]:
    """Renews the lease in the background for as long as this lasts, then gives it back. Where it
    was lost meanwhile both finish: evidence of two is a union."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE_S / 3):
            with suppress(StoreError):  # it may still run out later than the outage ends
                store.renew(held, LEASE_S)

    thread = threading.Thread(target=renew, name="humming-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(StoreError):
            store.release(held)
