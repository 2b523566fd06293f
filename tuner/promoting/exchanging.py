"""Neighbours' winners are tried on each other's problems, so that leave-one-out can say what they
are worth where nothing was tuned. Who is whose neighbour, and what follows, is humming/dispatch.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import TableEntry
from humming.dispatch.neighbours import kind_of, wanted
from humming.dispatch.transfer import LEAST_LAYERS
from humming.errors import LegalityError
from humming.jit.cache import CompiledKernel
from humming.spec.config import KernelConfig, config_id
from search_spaces.load import load_spaces
from tuner.measuring.conditions import clean_rounds
from tuner.planning.tasks import Task
from tuner.promoting.verdict import ratios_of
from tuner.searching.candidates import legal_candidates
from tuner.searching.compile_pool import compile_all
from tuner.searching.trials import Scope, trial
from tuner.store.entries import entries, trials_of
from tuner.store.records import Winner
from tuner.worker.isolation import WorkerLostError
from tuner.worker.messages import Open, Race, Raced
from tuner.workload import LayerGroup

MOST = 6
"""Neighbours of each way that are tried."""

ROUNDS, LEAST_ROUNDS = 7, 3
TIMEOUT_S = 120.0


def exchange(tasks: Sequence[Task], scope_of: Callable[[Task], Scope]) -> int:
    """Tries neighbours' winners on every tuned problem that is of a kind with `tasks`, as far as
    time reaches, and writes down what they take there; trials that it took. Nothing where too few
    layers are tuned for leave-one-out to say anything."""
    scope, measured = scope_of(tasks[0]), 0
    winners = scope.store.winners(scope.identity)
    table = entries(winners)
    asked = {kind_of(task.problem) for task in tasks if not task.problem.batch_invariant}
    given = {task.problem: task for task in tasks}
    for kind in sorted(asked, key=lambda kind: kind.id):
        alike = [w for w in winners if kind_of(w.problem) == kind and "rounds_us" in w.evidence]
        if len({(winner.problem.n, winner.problem.k) for winner in alike}) < LEAST_LAYERS:
            continue
        for winner in sorted(alike, key=lambda winner: (winner.problem.m, winner.id)):
            task = given.get(winner.problem) or _task_of(winner, scope)
            if task is not None and not scope.deadline.over:
                measured += _exchanged(scope_of(task), winner, table)
    return measured


def _task_of(winner: Winner, scope: Scope) -> Task | None:
    """A task for what another run tuned; None where this version runs it no more."""
    problem = winner.problem
    try:
        candidates = legal_candidates(problem, scope.identity.device, load_spaces())
    except LegalityError:
        return None
    group = LayerGroup(
        problem.op,
        problem.n,
        problem.k,
        1,
        problem.experts,
        problem.top_k,
        problem.format,
        ("tuned before",),
        problem.act_order,
    )
    return Task(group, problem, candidates, problem.m, problem.m + 1)


def _exchanged(scope: Scope, winner: Winner, table: Sequence[TableEntry]) -> int:
    """One problem: what its neighbours' configs take over its heuristic's, in paired rounds."""
    problem, device = winner.problem, scope.identity.device
    default = heuristic(problem, device)
    asked = {
        config_id(c): c for c in (default, winner.config, *wanted(problem, device, table, MOST))
    }
    known = trials_of(winner)
    if (
        known
        and known.heuristic == config_id(default)
        and asked.keys() <= dict(known.ratios).keys()
    ):
        return 0
    try:
        opened = Open(problem, max(scope.task.m_low, 1), scope.task.m_high)
        scope.worker.open(opened, scope.limit_s(TIMEOUT_S))
        measured, passed = _passed(scope, asked)
        if config_id(default) not in passed:
            return measured
        line = {key: asked[key] for key in (config_id(default), *passed)}
        ratios = _ratios(scope, line)
    except WorkerLostError as lost:
        if not scope.deadline.over:
            scope.watch.note(f"n={problem.n} k={problem.k} m={problem.m}: neighbours: {lost}")
        return 0
    if ratios is not None:
        failed = dict.fromkeys(asked.keys() - passed, None)
        _write(scope, winner, config_id(default), {**failed, **ratios})
    return measured


def _passed(scope: Scope, asked: Mapping[str, KernelConfig]) -> tuple[int, set[str]]:
    """Tries what was not tried yet; how many that were, and the ids of those that are right."""
    problem, device = scope.task.problem, scope.identity.device
    outcomes: dict[str, str] = dict.fromkeys(_quarantined(scope), "crashed")
    for past in scope.store.measurements(scope.identity, problem):
        key = past.config_id
        if key is not None and key in asked and outcomes.get(key, "ok") == "ok":
            outcomes[key] = past.outcome
    new = [config for key, config in asked.items() if key not in outcomes]
    kernels = compile_all(new, problem, device, scope.limit_s())
    measured = 0
    for config, kernel in zip(new, kernels, strict=True):
        draft = trial(config, kernel, scope, None)
        if draft is None:
            raise WorkerLostError("timeout", "the budget ended")
        measured += 1
        outcomes[config_id(config)] = draft.outcome
        scope.watch.trial(config, draft.outcome, draft.us)
    return measured, {key for key in asked if outcomes.get(key) == "ok"}


def _quarantined(scope: Scope) -> set[str]:
    pairs = scope.store.quarantined(scope.identity)
    return {key for problem_id, key in pairs if problem_id == scope.task.problem.id}


def _ratios(scope: Scope, line: Mapping[str, KernelConfig]) -> dict[str, float] | None:
    """Each side's time over the first one's, the heuristic's; None where too few rounds were taken
    under good conditions to say."""
    problem = scope.task.problem
    found = compile_all(list(line.values()), problem, scope.identity.device, scope.limit_s())
    kernels = {
        key: kernel
        for key, kernel in zip(line, found, strict=True)
        if isinstance(kernel, CompiledKernel)
    }
    if next(iter(kernels), None) != next(iter(line)):
        return None  # without the heuristic there is nothing to compare with
    request = Race(tuple(kernels.values()), ROUNDS, scope.deadline.left_s(), problem.m)
    raced = scope.worker.ask(request, scope.limit_s(TIMEOUT_S), scope.stall_s)
    assert isinstance(raced, Raced)
    rounds = clean_rounds(raced.samples_us, raced.conditions)
    if len(rounds[0]) < LEAST_ROUNDS or raced.policy.get("cold") is False:
        return None
    ratios = (statistics.median(ratios_of(side, rounds[0])) for side in rounds)
    return dict(zip(kernels, ratios, strict=True))


def _write(scope: Scope, winner: Winner, default: str, ratios: Mapping[str, float | None]) -> None:
    """The same winner, with what its neighbours take beside it."""
    scope.store.promote(
        scope.identity,
        winner.problem,
        winner.config,
        us=winner.us,
        heuristic_us=winner.heuristic_us,
        torch_us=winner.torch_us,
        limit_us=winner.limit_us,
        ratio_low=winner.ratio_low,
        ratio_high=winner.ratio_high,
        evidence={
            **winner.evidence,
            "neighbours": {"heuristic": default, "ratios": dict(sorted(ratios.items()))},
        },
    )
