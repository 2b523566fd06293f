"""One candidate's trial: launched in the worker, with an outcome whatever happens, stored. Which
candidates are tried is search.py."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from humming.errors import CompileError
from humming.jit.cache import CompiledKernel
from humming.spec.config import KernelConfig
from humming.spec.identity import Identity
from tuner.measuring.conditions import lacking, marked
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task
from tuner.progress import Watch
from tuner.store.records import MeasurementDraft, Outcome, Ticket
from tuner.store.store import Store
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Trial, Trialled

TRIAL_TIMEOUT_S = 60.0
GRACE_S = 0.6
"""How long after the deadline what has begun may still take, all of it together."""

STALL_S = 10.0
SLOWEST_S = 1e-9
"""A step of a trial (one launch, one sample, one comparison) may take STALL_S, and SLOWEST_S for
each product of numbers in it: generic code on a busy core does a thousand million a second."""

TRIES = 2
"""A worker that was ended from outside may try the same candidate again, once."""


@dataclass
class Scope:
    """What every step of one problem's tuning works with."""

    task: Task
    identity: Identity
    store: Store
    worker: Worker
    watch: Watch
    read_bytes_per_s: float
    deadline: Budget

    def limit_s(self, at_most_s: float = TRIAL_TIMEOUT_S) -> float:
        """Seconds that a request to the worker or the compiler may take: what the whole job has
        left, and a grace in which what has begun can end."""
        return min(at_most_s, self.deadline.left_with_s(GRACE_S))

    @property
    def stall_s(self) -> float:
        """Seconds that one step of the worker may take."""
        problem = self.task.problem
        products = max(problem.m, self.task.m_high - 1) * problem.n * problem.k
        return STALL_S + (products * SLOWEST_S if self.identity.device.kind == "cpu" else 0.0)


def trial(
    config: KernelConfig,
    kernel: CompiledKernel | CompileError,
    scope: Scope,
    best_us: float | None,
) -> MeasurementDraft | None:
    """One candidate's outcome, stored; None where the budget ended it, which is not its fault.
    `in_flight` is written before the launch, so that a crash leaves a name."""
    if isinstance(kernel, CompileError):
        if scope.deadline.over:
            return None  # the time ended the compiler, not the candidate
        draft = _draft(scope, config, "compile_error", detail=str(kernel))
        scope.store.finish(None, draft)
        return draft
    ticket = scope.store.begin(scope.identity, scope.task.problem, config)
    try:
        found = _asked(config, kernel, scope, best_us, ticket)
    except KeyboardInterrupt:
        scope.store.abandon(ticket)  # the user's doing, not the candidate's
        raise
    if found is not None:
        scope.store.finish(ticket, found)
    return found


def _asked(
    config: KernelConfig,
    kernel: CompiledKernel,
    scope: Scope,
    best_us: float | None,
    ticket: Ticket,
) -> MeasurementDraft | None:
    for attempt in range(TRIES):
        limit_s = scope.limit_s()
        try:
            request = Trial(kernel, config.block_m, best_us)
            result = scope.worker.ask(request, limit_s, scope.stall_s)
        except WorkerLostError as lost:
            if lost.outcome == "timeout" and limit_s < TRIAL_TIMEOUT_S and scope.deadline.over:
                if not lost.hung:  # else it stays in flight: a suspect, tried once more
                    scope.store.abandon(ticket)
                return None
            if lost.by_others and attempt + 1 < TRIES:
                continue
            seconds = kernel.compile_s
            return _draft(scope, config, lost.outcome, detail=str(lost), compile_s=seconds)
        assert isinstance(result, Trialled)
        _tell_of_memory(scope, result)
        return _draft(
            scope,
            config,
            result.outcome,
            us=statistics.median(result.samples_us) if result.samples_us else None,
            samples=result.samples_us,
            error=result.error,
            detail=result.detail,
            compile_s=kernel.compile_s,
            conditions=marked(result.conditions),
        )
    return None


def _tell_of_memory(scope: Scope, result: Trialled) -> None:
    """What the trial had to do without, once for a layer."""
    said = lacking(result.conditions)
    if said:
        problem = scope.task.problem
        scope.watch.note_once(f"n={problem.n} k={problem.k}: {said}")


def _draft(scope: Scope, config: KernelConfig, outcome: Outcome, **shown: Any) -> MeasurementDraft:
    return MeasurementDraft(
        identity=scope.identity,
        problem=scope.task.problem,
        config=config,
        outcome=outcome,
        kind="heuristic" if config == scope.task.candidates.heuristic else "candidate",
        **shown,
    )
