"""The finals of one problem: the fastest candidates meet the incumbents in paired rounds, and the
winner is written down. Who goes on is racing.py, the verdict verdict.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from humming.jit.cache import CompiledKernel
from humming.spec.config import config_id
from tuner.measuring.conditions import clean_rounds, foul, marked
from tuner.measuring.samples import LEAST_ROUNDS
from tuner.planning.budget import Budget
from tuner.promoting.span import proven_span
from tuner.promoting.verdict import MIN_ROUNDS, Verdict, decide, ratios_of
from tuner.searching.compile_pool import compile_all
from tuner.searching.search import Known, Scope
from tuner.searching.trials import trial
from tuner.store.records import MeasurementDraft
from tuner.worker.isolation import WorkerLostError
from tuner.worker.messages import Baseline, Race, Raced, Trialled

FINALISTS = 6
CLOSE = 1.1
"""Candidates race whose times are within CLOSE of the best: they were not timed in the same
seconds."""

ROUNDS = 48
"""At the most; losers are dropped after six, and most finals are decided after twelve."""
TIMEOUT_S = 120.0

Line = list[tuple[str, CompiledKernel]]
"""Config ids and kernels that race, the incumbent first."""


def hold_finals(scope: Scope, known: Known, budget: Budget) -> bool:
    """Promote what the paired rounds prove; the incumbent stays inside noise. False where nothing
    was promoted: no candidate passed, or the finals were lost."""
    line = _line_up(scope, known)
    if not line:
        _note(scope, "no candidate passed; the heuristic serves")
        return False
    try:
        torch_us = _torch_us(scope)
        line, raced = _race(scope, known, line, budget)
        verdict = _verdict(scope, raced)
        winner = line[verdict.winner][0]
        span = proven_span(scope, known.configs[winner], budget)
    except WorkerLostError as lost:
        _note(scope, f"the finals were lost: {_why(scope, lost)}")
        return False
    _promote(scope, known, line, raced, verdict, torch_us, span)
    return True


def _why(scope: Scope, lost: WorkerLostError) -> str:
    """Time that ran out is the budget's doing, not the worker's."""
    ended = lost.outcome == "timeout" and not lost.hung and scope.deadline.over
    return "the budget ended before they were decided" if ended else str(lost)


def _race(scope: Scope, known: Known, line: Line, budget: Budget) -> tuple[Line, Raced]:
    """The paired rounds. Where they take the worker along, each that raced is tried alone once
    more, which names the offender; the others race again."""
    try:
        return line, _rounds(scope, line, budget)
    except WorkerLostError as lost:
        if scope.deadline.over:
            raise
        _note(scope, f"a finalist took the worker along ({lost}); each is tried alone")
    passed: Line = []
    for key, kernel in line:
        draft = trial(known.configs[key], kernel, scope, None)
        if draft is not None and draft.us is not None:
            passed.append((key, kernel))
    if not passed:
        raise WorkerLostError("crashed", "no finalist passed alone")
    return passed, _rounds(scope, passed, budget)


def _rounds(scope: Scope, line: Line, budget: Budget) -> Raced:
    kernels = tuple(kernel for _, kernel in line)
    problem = scope.task.problem
    request = Race(kernels, ROUNDS, budget.left_s() / 2, problem.m, until_decided=True)
    raced = scope.worker.ask(request, scope.limit_s(TIMEOUT_S), scope.stall_s)
    assert isinstance(raced, Raced)
    return raced


def _promote(
    scope: Scope,
    known: Known,
    line: Line,
    raced: Raced,
    verdict: Verdict,
    torch_us: float,
    span: tuple[int, int],
) -> None:
    clean = clean_rounds(raced.samples_us, raced.conditions)
    kept = clean if len(clean[0]) >= LEAST_ROUNDS else [list(side) for side in raced.samples_us]
    winner, us = line[verdict.winner][0], statistics.median(kept[verdict.winner])
    keys = [key for key, _ in line]
    scope.store.promote(
        scope.identity,
        scope.task.problem,
        known.configs[winner],
        us=us,
        heuristic_us=_heuristic_us(scope, keys, kept, verdict.winner, us),
        torch_us=torch_us,
        limit_us=scope.task.problem.least_bytes / scope.read_bytes_per_s * 1e6,
        ratio_low=verdict.interval.low,
        ratio_high=verdict.interval.high,
        evidence={
            "rounds_us": {
                key: list(times) for key, times in zip(keys, raced.samples_us, strict=True)
            },
            "conditions": [marked(beside) for beside in raced.conditions],
            **raced.policy,
            "incumbent": keys[0],
            "serves": list(span),
        },
    )


def _heuristic_us(
    scope: Scope, keys: list[str], kept: Sequence[Sequence[float]], winner: int, us: float
) -> float:
    """The winner's time times what the heuristic takes more in the rounds that both ran."""
    name = config_id(scope.task.candidates.heuristic)
    if name not in keys or keys[winner] == name:
        return us
    ratios = ratios_of(kept[keys.index(name)], kept[winner])
    return us * statistics.median(ratios) if ratios else us


def _verdict(scope: Scope, raced: Raced) -> Verdict:
    """The verdict of the rounds under good conditions. Contended and throttled ones prove nothing:
    where too few are left, the incumbent stays."""
    clean = clean_rounds(raced.samples_us, raced.conditions)
    rounds, good = len(raced.samples_us[0]), len(clean[0])
    why = next(filter(None, map(foul, raced.conditions)), "")
    if raced.policy.get("cold") is False:
        why = foul(raced.policy) or ""
        clean = [[] for _ in clean]
    elif good >= MIN_ROUNDS or rounds < MIN_ROUNDS:
        return decide(clean)
    _note(
        scope,
        f"{rounds - len(clean[0])} of {rounds} rounds of the finals prove nothing, as {why}; what "
        "served stays, search on with --continue when it is calm",
    )
    return decide(clean)


def _note(scope: Scope, text: str) -> None:
    problem = scope.task.problem
    scope.watch.note(f"n={problem.n} k={problem.k} m={problem.m}: {text}")


def _line_up(scope: Scope, known: Known) -> Line:
    """Who races, the incumbent first: what is served now, else the heuristic's; then the heuristic
    and the fastest."""
    served = [
        config_id(winner.config)
        for winner in scope.store.winners(scope.identity)
        if winner.problem.id == scope.task.problem.id
    ]
    heuristic = config_id(scope.task.candidates.heuristic)
    wanted = [*served, heuristic, *contenders(known)]
    order = [key for key in dict.fromkeys(wanted) if key in known.times]
    configs = [known.configs[key] for key in order]
    kernels = compile_all(configs, scope.task.problem, scope.identity.device, scope.limit_s())
    return [
        (key, kernel)
        for key, kernel in zip(order, kernels, strict=True)
        if isinstance(kernel, CompiledKernel)
    ]


def contenders(known: Known) -> list[str]:
    """The fastest, up to FINALISTS of those that are CLOSE, in an order that no noise changes: of
    equals the first is served."""
    best_us = known.best_us
    if best_us is None:
        return []
    close = [key for key in known.ranked() if known.times[key] <= CLOSE * best_us]
    return sorted(close[:FINALISTS])


def _torch_us(scope: Scope) -> float:
    """Median time of torch's linear: earlier evidence, or measured now and stored like any
    other."""
    for past in scope.store.measurements(scope.identity, scope.task.problem):
        if past.kind == "torch" and past.us is not None:
            return past.us
    result = scope.worker.ask(Baseline(), scope.limit_s(TIMEOUT_S))
    assert isinstance(result, Trialled)
    median = statistics.median(result.samples_us)
    scope.store.finish(
        None,
        MeasurementDraft(
            identity=scope.identity,
            problem=scope.task.problem,
            config=None,
            kind="torch",
            outcome="ok",
            us=median,
            samples=result.samples_us,
            conditions=marked(result.conditions),
        ),
    )
    return median
