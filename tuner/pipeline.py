"""The road, as code: one problem at a time from a config.json to a tuned table. Every stage lives
in a file of its own.

config.json -> Layer -> Problem -> SearchSpace -> KernelConfig -> KernelSource -> CompiledKernel
            -> Verification -> Measurement -> record in the store -> TunedTable -> Dispatch
            -> launch
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from humming.dispatch.tables import TunedTable, current_table
from humming.errors import StoreAwayError, UsageError
from humming.jit.identity import here
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.routing import UNIFORM
from search_spaces.load import load_spaces
from tuner.fleet.misses import missed_tasks
from tuner.fleet.sharing import share_out
from tuner.fleet.work import Crew, Work
from tuner.planning.budget import Budget
from tuner.planning.tasks import Skipped, Task, make_tasks
from tuner.progress import Watch
from tuner.promoting.cross_measuring import cross_measure
from tuner.promoting.exchanging import exchange
from tuner.promoting.finals import hold_finals
from tuner.searching.compile_pool import cores
from tuner.searching.search import Scope, search
from tuner.searching.trials import GRACE_S
from tuner.store.store import Store
from tuner.store.tables import publish
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Done, Open, Rate, ReadLimit
from tuner.workload import Workload, read_workload

OPEN_TIMEOUT_S = 120.0
BUSY_SHARE = 0.75
"""Load average per core above which the user is told that times are unsure."""

SEARCH_SHARE = 0.75
"""Part of a problem's time for the search; the rest is for the paired rounds of its finalists."""


@dataclass(frozen=True)
class Job:
    """What the user asked for; without a model, what serving processes missed."""

    model: Path | None
    device: Device
    m_values: tuple[int, ...]
    tp: int = 1
    format: str | None = None
    resume: bool = False
    routing: str = UNIFORM
    batch_invariant: bool = False
    unfused: bool = False


@dataclass(frozen=True)
class Tuned:
    """What came of it. `measured` counts the trials run now; `whole` is whether the tasks are all
    layers of a model."""

    workload: Workload
    identity: Identity
    tasks: list[Task]
    skipped: list[Skipped]
    measured: int
    table: TunedTable | None
    whole: bool = True


def tune(
    job: Job, store: Store, tables: Path, budget: Budget, watch: Watch, crew: Crew | None = None
) -> Tuned:
    """Settle every problem of the model that is not settled yet, here or by a crew, then write the
    table that the runtime reads.

    What was proven stays where the run ends early, by Ctrl-C too: each trial is stored as it ends.
    """
    identity = crew.identity if crew else here(job.device)
    workload, tasks, skipped = _asked(job, store, identity)
    since = store.clock() if job.resume else None
    counted = Count()
    try:
        if crew is None:
            settle_open(tasks, identity, store, budget, watch, since, counted)
        else:
            work = Work(workload if job.model else None, job.m_values, since)
            counted.trials = _by_crew(crew, work, tasks, identity, store, budget, watch)
    finally:  # after Ctrl-C too: what is proven serves
        table = _published(store, tables, watch)
    whole = job.model is not None
    return Tuned(workload, identity, tasks, skipped, counted.trials, table, whole)


def _asked(
    job: Job, store: Store, identity: Identity
) -> tuple[Workload, list[Task], list[Skipped]]:
    if job.model is not None:
        return plan(replace(job, device=identity.device))
    tasks, workload = missed_tasks(store, identity)
    return workload, tasks, []


def _published(store: Store, tables: Path, watch: Watch) -> TunedTable | None:
    """The table of what is proven; the last one while the database is away."""
    try:
        return publish(store, tables)
    except StoreAwayError as error:
        watch.note(f"{error}; its last table serves, run humming-tune again when it is back")
    return current_table(tables)


def _by_crew(
    crew: Crew,
    work: Work,
    tasks: list[Task],
    identity: Identity,
    store: Store,
    budget: Budget,
    watch: Watch,
) -> int:
    """Trials that the crew ran; shows meanwhile how many problems are settled."""

    def settled() -> int:
        done = store.settled(identity, work.since)
        return sum(task.problem.id in done for task in tasks)

    left_s = budget.left_s()
    until = None if left_s == float("inf") else store.clock() + timedelta(seconds=left_s)
    with watch.running(len(tasks), settled()):
        results = crew.run(work, until, budget, watch.note, lambda: watch.reached(settled()))
    for note in dict.fromkeys(note for result in results for note in result.notes):
        watch.note(note)
    return sum(result.measured for result in results)


@dataclass
class Count:
    """Trials of this run."""

    trials: int = 0


def settle_open(
    tasks: list[Task],
    identity: Identity,
    store: Store,
    budget: Budget,
    watch: Watch,
    since: datetime | None,
    counted: Count,
) -> None:
    """Settle on this machine's device what is open of `tasks` and not being tuned by others. With
    `since`, what was settled before counts as open, and is searched on."""
    settled = store.settled(identity, since)
    open_tasks = [task for task in tasks if task.problem.id not in settled]
    with (
        Worker(identity.device) as worker,
        watch.running(len(tasks), len(tasks) - len(open_tasks)),
    ):
        if not open_tasks or budget.over:
            return
        try:
            rate = read_bytes_per_s(worker, budget)
        except WorkerLostError:
            if budget.over:
                return
            raise
        _warn_if_busy(watch)

        def scope_of(task: Task) -> Scope:
            return Scope(task, identity, store, worker, watch, rate, budget)

        def one(task: Task, share: Budget) -> None:
            store.keep_at_hand(identity, task.problem)
            counted.trials += settle(scope_of(task), share, since is not None)

        share_out(open_tasks, identity, store, budget, since, one, watch.note)
        for task in {task.problem.at(0): task for task in tasks}.values():
            if task.problem.op == "dense":
                cross_measure(scope_of(task), task.problem.at(0))
        counted.trials += exchange(tasks, scope_of)


def _warn_if_busy(watch: Watch) -> None:
    """Times beside other work are unsure: torch's threads, which wait for each other, suffer
    most."""
    load = os.getloadavg()[0]
    if load > BUSY_SHARE * cores():
        watch.note(
            f"this machine is busy (load average {load:.1f} on {cores()} cores), so times are "
            "unsure; search on when it is calm, with --continue"
        )


def read_bytes_per_s(worker: Worker, budget: Budget) -> float:
    """How fast the device reads memory: the limit that times are compared with. Raises
    WorkerLostError where the budget ends meanwhile."""
    rate = worker.ask(ReadLimit(), min(OPEN_TIMEOUT_S, budget.left_with_s(GRACE_S)))
    assert isinstance(rate, Rate)
    return rate.bytes_per_s


def settle(scope: Scope, budget: Budget, resume: bool) -> int:
    """Settle one problem within `budget`; returns how many trials ran. No candidate, however bad,
    ends the tuning."""
    task = scope.task
    scope.watch.problem(task)
    try:
        request = Open(task.problem, task.m_low, task.m_high)
        opened = scope.worker.open(request, scope.limit_s(OPEN_TIMEOUT_S))
    except WorkerLostError as lost:
        scope.watch.note(f"n={task.problem.n} k={task.problem.k}: {lost}; left for another run")
        return 0
    if isinstance(opened, Done) and opened.note:
        scope.watch.note_once(f"n={task.problem.n} k={task.problem.k}: {opened.note}")
    known, reason = search(scope, budget.share(SEARCH_SHARE, 1.0), resume)
    promoted = hold_finals(scope, known, budget)
    if promoted or reason != "budget":
        scope.store.settle(scope.identity, task.problem, reason, known.measured)
    return known.measured


def plan(job: Job) -> tuple[Workload, list[Task], list[Skipped]]:
    """The part of the road before anything runs. Raises UsageError where nothing is left to
    tune."""
    assert job.model is not None
    workload = read_workload(job.model, job.tp, job.format, job.unfused)
    workload = replace(workload, routing=job.routing, batch_invariant=job.batch_invariant)
    if not workload.problems:
        raise UsageError(
            f"{os.fspath(job.model)} quantizes no layer; name a format for its 16-bit layers, for "
            "example --format int4g128"
        )
    tasks, skipped = make_tasks(workload, job.m_values, job.device, load_spaces())
    if not tasks:
        raise UsageError(skipped[0].reason)
    return workload, tasks, skipped
