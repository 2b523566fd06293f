"""The search of one problem: propose, compile, verify, time, store. Who wins is decided in
tuner/promoting/finals.py; one candidate's trial is trials.py; when to stop is stopping.py."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from itertools import zip_longest

from humming.spec.config import KernelConfig, config_id
from humming.spec.problem import Problem
from tuner.planning.budget import Budget
from tuner.searching.compile_pool import Ahead, compile_all, cores, spare_cores
from tuner.searching.sampler import Sampler
from tuner.searching.stopping import SMALL, stop
from tuner.searching.trials import GRACE_S, Scope, trial
from tuner.store.records import Reason

__all__ = ["GRACE_S", "Known", "Scope", "search"]

SEEDS = 6
"""Winners of other problems that are tried first, and as many runners-up of the heuristic."""

NEWS = 0.99
"""A time under NEWS x the best is news; less is noise."""


@dataclass
class Known:
    """Times of this problem's candidates in the order in which they came, from this run and from
    earlier evidence. `measured` counts this run's trials, `failed` the configs that never pass."""

    times: dict[str, float] = field(default_factory=dict)
    configs: dict[str, KernelConfig] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    measured: int = 0
    since_news: int = 0

    @property
    def best_us(self) -> float | None:
        """The least time, or None."""
        return min(self.times.values(), default=None)

    def ranked(self) -> list[str]:
        """Config ids from fastest to slowest."""
        return sorted(self.times, key=lambda key: self.times[key])

    def learn(self, config: KernelConfig, us: float | None) -> None:
        """Take the time of a candidate, None where it did not pass."""
        if us is None:
            self.failed.add(config_id(config))
            return
        news = self.best_us is None or us < self.best_us * NEWS
        self.since_news = 0 if news else self.since_news + 1
        self.times[config_id(config)] = us
        self.configs[config_id(config)] = config


def search(scope: Scope, budget: Budget, resume: bool = False) -> tuple[Known, Reason]:
    """Search until all is tried ("exhausted"), too little is to be expected ("rule") or the budget
    ends ("budget").

    Evidence of earlier runs counts as if it were this run's; `resume` gives the rule its patience
    back. The heuristic's config is measured first, whatever the budget: it is the incumbent of the
    finals.
    """
    known = Known()
    sampler = _sampler(scope, known)
    if resume:
        known.since_news = 0
    heuristic = scope.task.candidates.heuristic
    if config_id(heuristic) not in known.times.keys() | known.failed:
        sampler.know(heuristic, None)
        _run([heuristic], scope, known, sampler)
    spare = spare_cores(scope.identity.device)
    if spare > 0:
        return known, _ahead(scope, budget, known, sampler, spare)
    return known, _in_batches(scope, budget, known, sampler)


def _ahead(scope: Scope, budget: Budget, known: Known, sampler: Sampler, workers: int) -> Reason:
    """Compilers run on other cores while candidates are verified and timed."""
    depth = max(2, min(workers, 16))
    last_s = 0.0
    with Ahead(scope.task.problem, scope.identity.device, workers) as ahead:
        while True:
            reason = _reason(scope, budget, known, sampler, last_s, waiting=len(ahead))
            if reason is not None:
                return reason
            while len(ahead) < depth and (config := sampler.ask()) is not None:
                ahead.begin(config, scope.limit_s())
            if not len(ahead):
                return "exhausted"
            start = time.monotonic()
            config, kernel = ahead.next()
            draft = trial(config, kernel, scope, known.best_us)
            if draft is None:
                return "budget"
            _take(config, draft.us, draft.outcome, scope, known, sampler)
            last_s = time.monotonic() - start


def _in_batches(scope: Scope, budget: Budget, known: Known, sampler: Sampler) -> Reason:
    """A batch is compiled on all cores, then timed alone: a compiler beside it would disturb."""
    batch_s = 0.0
    while True:
        reason = _reason(scope, budget, known, sampler, batch_s)
        if reason is not None:
            return reason
        start = time.monotonic()
        asked = (sampler.ask() for _ in range(cores()))
        _run([config for config in asked if config], scope, known, sampler)
        batch_s = time.monotonic() - start


def _reason(
    scope: Scope,
    budget: Budget,
    known: Known,
    sampler: Sampler,
    last_s: float,
    waiting: int = 0,
) -> Reason | None:
    """Why the search ends here, if it does. The last step tells what another one would take."""
    if sampler.exhausted and not waiting:
        return "exhausted"
    if budget.left_s() <= last_s or scope.deadline.over:
        return "budget"
    small = len(scope.task.candidates.configs) <= SMALL  # all of it is tried
    if not small and stop(len(known.times), known.since_news, sampler.expected_gain()):
        return "rule"
    return None


def _sampler(scope: Scope, known: Known) -> Sampler:
    """What proposes candidates. It knows this problem's evidence, and starts in turn from what the
    heuristic finds promising and from winners of the nearest problems: of this m first, then of the
    layer's other m."""
    problem, store = scope.task.problem, scope.store
    legal = scope.task.candidates.configs
    near = sorted(store.winners(scope.identity), key=lambda w: _unlike(w.problem, problem))
    seeds = list(dict.fromkeys(w.config for w in near if config_id(w.config) in legal))
    turns = zip_longest(scope.task.candidates.promising[:SEEDS], seeds[:SEEDS])
    sampler = Sampler(legal, [config for turn in turns for config in turn if config])
    for past in store.measurements(scope.identity, problem):
        if past.config is not None and config_id(past.config) in legal:
            sampler.know(past.config, past.us)
            known.learn(past.config, past.us)
    for problem_id, key in store.quarantined(scope.identity):
        if problem_id == problem.id and key in legal:
            sampler.know(legal[key], None)
            known.failed.add(key)
    for key in known.failed:  # what failed once does not race, whatever it did before
        known.times.pop(key, None)
    return sampler


def _unlike(problem: Problem, ours: Problem) -> float:
    """How far another problem is: doublings of n, k and rows between them. Of experts those are the
    rows of one in the mean, and tokens tell apart what has alike many."""
    if (problem.format, problem.op) != (ours.format, ours.op):
        return math.inf
    rows = (problem.rows_of_expert + 1, ours.rows_of_expert + 1)
    pairs = ((problem.n, ours.n), (problem.k, ours.k), rows)
    far = sum(abs(math.log2(theirs / mine)) for theirs, mine in pairs)
    if problem.op == "dense":
        return far
    return far + abs(math.log2((problem.m + 1) / (ours.m + 1))) / 4


def _run(batch: list[KernelConfig], scope: Scope, known: Known, sampler: Sampler) -> None:
    kernels = compile_all(batch, scope.task.problem, scope.identity.device, scope.limit_s())
    for config, kernel in zip(batch, kernels, strict=True):
        draft = trial(config, kernel, scope, known.best_us)
        if draft is None:
            return
        _take(config, draft.us, draft.outcome, scope, known, sampler)


def _take(
    config: KernelConfig,
    us: float | None,
    outcome: str,
    scope: Scope,
    known: Known,
    sampler: Sampler,
) -> None:
    known.measured += 1
    known.learn(config, us)
    sampler.tell(config, us)
    scope.watch.trial(config, outcome, us)
