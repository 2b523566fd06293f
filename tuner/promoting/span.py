"""How far from its anchor a winner may serve: as far as it does not lose to the heuristic there.
Who wins at the anchor is finals.py."""

from __future__ import annotations

from humming.dispatch.heuristics import heuristic
from humming.jit.cache import CompiledKernel
from humming.spec.config import KernelConfig
from tuner.planning.budget import Budget
from tuner.promoting.verdict import paired_ratio
from tuner.searching.compile_pool import compile_all
from tuner.searching.search import Scope
from tuner.worker.isolation import WorkerLostError
from tuner.worker.messages import Race, Raced

ROUNDS = 5
TIMEOUT_S = 120.0


def proven_span(scope: Scope, winner: KernelConfig, budget: Budget) -> tuple[int, int]:
    """The half-open interval of m that `winner` may serve, within the task's.

    At each end it meets the heuristic's config for that m in paired rounds. Where it is slower, or
    where no time is left to tell, it serves only up to its own anchor on that side. Between the
    anchor and a proven end it is taken to hold.
    """
    task = scope.task
    low, high = task.m_low, task.m_high
    if not _holds(scope, winner, max(low, 1), budget):
        low = task.problem.m
    if not _holds(scope, winner, high - 1, budget):
        high = task.problem.m + 1
    return low, high


def _holds(scope: Scope, winner: KernelConfig, m: int, budget: Budget) -> bool:
    problem = scope.task.problem.at(m)
    default = heuristic(problem, scope.identity.device)
    if default == winner or m == scope.task.problem.m:
        return True
    if budget.over:
        return False
    kernels = compile_all([default, winner], problem, scope.identity.device)
    pair = tuple(kernel for kernel in kernels if isinstance(kernel, CompiledKernel))
    if len(pair) < 2:
        return False
    request = Race(pair, ROUNDS, budget.left_s(), m)
    try:
        raced = scope.worker.ask(request, scope.limit_s(TIMEOUT_S), scope.stall_s)
    except WorkerLostError:
        return False
    assert isinstance(raced, Raced)
    return paired_ratio(raced.samples_us[1], raced.samples_us[0]).ratio <= 1.0
