"""The finals of one problem: the fastest candidates meet the incumbents in paired rounds, and the
winner is written down. The rule of the verdict is promote.py."""

from __future__ import annotations

import statistics

from humming.jit.cache import CompiledKernel
from humming.spec.config import config_id
from tuner.budget import Budget
from tuner.compile_pool import compile_all
from tuner.conditions import clean_rounds, foul, marked
from tuner.isolation import WorkerLostError
from tuner.measure import MIN_SAMPLES
from tuner.messages import Baseline, Race, Raced, Trialled
from tuner.promote import MIN_ROUNDS, Verdict, decide
from tuner.search import Known, Scope
from tuner.span import proven_span
from tuner.store.records import MeasurementDraft

FINALISTS = 3
ROUNDS = 48
"""At the most; most finals are decided after the first twelve."""
TIMEOUT_S = 120.0


def hold_finals(scope: Scope, known: Known, budget: Budget) -> bool:
    """Promote what the paired rounds prove; the incumbent stays inside noise. False where nothing
    was promoted: no candidate passed, or the finals were lost."""
    problem = scope.task.problem
    order = _line_up(scope, known)
    kernels = compile_all([known.configs[key] for key in order], problem, scope.identity.device)
    line = [
        (key, kernel)
        for key, kernel in zip(order, kernels, strict=True)
        if isinstance(kernel, CompiledKernel)
    ]
    if not line:
        _note(scope, "no candidate passed; the heuristic serves")
        return False
    try:
        torch_us = _torch_us(scope)
        racers = tuple(kernel for _, kernel in line)
        request = Race(racers, ROUNDS, budget.left_s() / 2, problem.m, until_decided=True)
        raced = scope.worker.ask(request, scope.limit_s(TIMEOUT_S))
        assert isinstance(raced, Raced)
        verdict = _verdict(scope, raced)
        winner = line[verdict.winner][0]
        span = proven_span(scope, known.configs[winner], budget)
    except WorkerLostError as lost:
        _note(scope, f"the finals were lost: {lost}")
        return False
    rounds = {key: list(times) for (key, _), times in zip(line, raced.samples_us, strict=True)}
    clean = clean_rounds(raced.samples_us, raced.conditions)
    kept = clean if len(clean[0]) >= MIN_SAMPLES else raced.samples_us
    us = {key: statistics.median(times) for (key, _), times in zip(line, kept, strict=True)}
    scope.store.promote(
        scope.identity,
        problem,
        known.configs[winner],
        us=us[winner],
        heuristic_us=us.get(config_id(scope.task.candidates.heuristic), us[winner]),
        torch_us=torch_us,
        limit_us=problem.least_bytes / scope.read_bytes_per_s * 1e6,
        ratio_low=verdict.interval.low,
        ratio_high=verdict.interval.high,
        evidence={
            "rounds_us": rounds,
            "conditions": [marked(beside) for beside in raced.conditions],
            "incumbent": line[0][0],
            "serves": list(span),
        },
    )
    return True


def _verdict(scope: Scope, raced: Raced) -> Verdict:
    """The verdict of the rounds under good conditions. Contended and throttled ones prove nothing:
    where too few are left, the incumbent stays."""
    clean = clean_rounds(raced.samples_us, raced.conditions)
    rounds, good = len(raced.samples_us[0]), len(clean[0])
    if good < MIN_ROUNDS <= rounds:
        why = next(filter(None, map(foul, raced.conditions)), "")
        _note(
            scope,
            f"{rounds - good} of {rounds} rounds of the finals prove nothing, as {why}; what "
            "served stays, search on with --continue when it is calm",
        )
    return decide(clean)


def _note(scope: Scope, text: str) -> None:
    problem = scope.task.problem
    scope.watch.note(f"n={problem.n} k={problem.k} m={problem.m}: {text}")


def _line_up(scope: Scope, known: Known) -> list[str]:
    """Config ids that race, the incumbent first: what is served now, else the heuristic's; then the
    heuristic and the fastest."""
    served = [
        config_id(winner.config)
        for winner in scope.store.winners(scope.identity)
        if winner.problem.id == scope.task.problem.id
    ]
    heuristic = config_id(scope.task.candidates.heuristic)
    wanted = [*served, heuristic, *known.ranked()[:FINALISTS]]
    return [key for key in dict.fromkeys(wanted) if key in known.times]


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
