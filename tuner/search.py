"""The search of one problem: propose, compile, verify, time, store. Who wins is decided in
finals.py."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Any

from humming.errors import CompileError
from humming.jit.cache import CompiledKernel
from humming.spec.config import KernelConfig, config_id
from humming.spec.identity import Identity
from tuner.budget import Budget
from tuner.compile_pool import compile_all, cores
from tuner.conditions import marked
from tuner.isolation import Worker, WorkerLostError
from tuner.messages import Trial, Trialled
from tuner.progress import Watch
from tuner.sampler import Samplers
from tuner.store.records import MeasurementDraft, Outcome, Reason
from tuner.store.store import Store
from tuner.tasks import Task

TRIAL_TIMEOUT_S = 60.0
GRACE_S = 1.2
"""How long after the deadline what has begun may still take, all of it together."""

MIN_TRIALS = 16
PATIENCE = 12
"""A problem is settled by rule after MIN_TRIALS trials of which the last PATIENCE brought
nothing."""

BETTER = 0.99
"""A time under BETTER x the best is news; less is noise."""


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

    def limit_s(self, at_most_s: float) -> float:
        """Seconds that a request to the worker may take: what the whole job has left, and a grace
        in which what has begun can end."""
        return min(at_most_s, self.deadline.left_with_s(GRACE_S))


@dataclass
class Known:
    """Times of this problem's candidates, from this run and from earlier evidence. `measured`
    counts this run's trials."""

    times: dict[str, float] = field(default_factory=dict)
    configs: dict[str, KernelConfig] = field(default_factory=dict)
    measured: int = 0
    since_news: int = 0

    @property
    def best_us(self) -> float | None:
        """The least time, or None."""
        return min(self.times.values(), default=None)

    def ranked(self) -> list[str]:
        """Config ids from fastest to slowest."""
        return sorted(self.times, key=lambda key: self.times[key])

    def learn(self, config: KernelConfig, us: float) -> None:
        """Take the time of a candidate that passed."""
        news = self.best_us is None or us < self.best_us * BETTER
        self.since_news = 0 if news else self.since_news + 1
        self.times[config_id(config)] = us
        self.configs[config_id(config)] = config


def search(scope: Scope, budget: Budget, resume: bool = False) -> tuple[Known, Reason]:
    """Search until all is tried ("exhausted"), nothing new comes ("rule") or the budget ends
    ("budget").

    Evidence of earlier runs counts as if it were this run's; `resume` gives the rule its patience
    back. The heuristic's config is always measured, whatever the budget: it is the incumbent of the
    finals.
    """
    known = Known()
    sampler = _sampler(scope, known)
    if resume:
        known.since_news = 0
    heuristic = scope.task.candidates.heuristic
    start = time.monotonic()
    if config_id(heuristic) not in known.times:
        sampler.know(heuristic, None)
        _run([heuristic], scope, known, sampler)
    batch_s = time.monotonic() - start
    while True:
        if sampler.exhausted:
            return known, "exhausted"
        if (
            budget.left_s() <= batch_s or scope.deadline.over
        ):  # the last batch tells what another one would take
            return known, "budget"
        if len(known.times) >= MIN_TRIALS and known.since_news >= PATIENCE:
            return known, "rule"
        start = time.monotonic()
        batch = [config for config in (sampler.ask() for _ in range(cores())) if config]
        _run(batch, scope, known, sampler)
        batch_s = time.monotonic() - start


def _sampler(scope: Scope, known: Known) -> Samplers:
    """A sampler that knows this problem's evidence and starts from winners of the nearest
    problems."""
    problem, store = scope.task.problem, scope.store
    legal = scope.task.candidates.configs
    near = sorted(
        (w for w in store.winners(scope.identity) if w.problem.m == problem.m),
        key=lambda w: abs(w.problem.n * w.problem.k - problem.n * problem.k),
    )
    sampler = Samplers(
        scope.task.candidates.by_family,
        {f: space.parameters for f, space in scope.task.candidates.spaces.items()},
        [winner.config for winner in near],
    )
    for past in store.measurements(scope.identity, problem):
        if past.config is not None and config_id(past.config) in legal:
            sampler.know(past.config, past.us)
            if past.us is not None:
                known.learn(past.config, past.us)
    for problem_id, key in store.quarantined(scope.identity):
        if problem_id == problem.id and key in legal:
            sampler.know(legal[key], None)
    return sampler


def _run(batch: list[KernelConfig], scope: Scope, known: Known, sampler: Samplers) -> None:
    """Compile a batch on all cores, then verify and time it alone: a compiler beside it would
    disturb a CPU's timing."""
    kernels = compile_all(batch, scope.task.problem, scope.identity.device)
    for config, kernel in zip(batch, kernels, strict=True):
        draft = _trial(config, kernel, scope, known.best_us)
        if draft is None:
            return
        known.measured += 1
        if draft.us is not None:
            known.learn(config, draft.us)
        sampler.tell(config, draft.us)
        scope.watch.trial(config, draft.outcome, draft.us)


def _trial(
    config: KernelConfig,
    kernel: CompiledKernel | CompileError,
    scope: Scope,
    best_us: float | None,
) -> MeasurementDraft | None:
    """One candidate's outcome, stored; None where the budget ended it, which is not its fault.
    `in_flight` is written before the launch, so that a crash leaves a name."""
    problem, store = scope.task.problem, scope.store
    if isinstance(kernel, CompileError):
        draft = _draft(scope, config, "compile_error", detail=str(kernel))
        store.finish(None, draft)
        return draft
    ticket = store.begin(scope.identity, problem, config)
    try:
        limit_s = scope.limit_s(TRIAL_TIMEOUT_S)
        result = scope.worker.ask(Trial(kernel, config.block_m, best_us), limit_s)
        assert isinstance(result, Trialled)
        draft = _draft(
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
    except WorkerLostError as lost:
        if lost.outcome == "timeout" and limit_s < TRIAL_TIMEOUT_S:
            store.abandon(ticket)
            return None
        draft = _draft(scope, config, lost.outcome, detail=str(lost), compile_s=kernel.compile_s)
    except KeyboardInterrupt:
        store.abandon(ticket)  # the user's doing, not the candidate's
        raise
    store.finish(ticket, draft)
    return draft


def _draft(scope: Scope, config: KernelConfig, outcome: Outcome, **shown: Any) -> MeasurementDraft:
    return MeasurementDraft(
        identity=scope.identity,
        problem=scope.task.problem,
        config=config,
        outcome=outcome,
        kind="heuristic" if config == scope.task.candidates.heuristic else "candidate",
        **shown,
    )
