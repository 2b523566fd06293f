"""The config that serves where nothing was measured, on whatever device. Pure: picks no kernels.

How it is chosen is a module a kind of device, heuristics_cpu.py and heuristics_cuda.py, and for
experts heuristics_experts.py, for batch-invariant layers invariant.py; tuned configs are tables.py.
"""

from __future__ import annotations

from humming.dispatch import (
    heuristics_cpu,
    heuristics_cuda,
    heuristics_experts,
    heuristics_grouped_near,
)
from humming.dispatch.heuristics_cpu import best_code_path
from humming.dispatch.invariant import invariant_intervals
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem

__all__ = ["best_code_path", "heuristic", "heuristic_intervals", "runners_up"]


def heuristic(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` (its m counts) on `device`.

    Legal wherever any of the device's families can serve the problem at all; the same for all m of
    one interval of `heuristic_intervals`.
    """
    if problem.op == "moe":
        return heuristics_experts.heuristic(problem, device)
    if problem.batch_invariant:
        spans = invariant_intervals(problem, device)
        return next(config for low, high, config in spans if low <= problem.m < high)
    if device.kind == "cuda":
        return heuristics_cuda.heuristic(problem, device)
    return heuristics_cpu.heuristic(problem, device)


def runners_up(problem: Problem, device: Device) -> list[KernelConfig]:
    """Configs that a search may well try first: those that may be as fast as the heuristic's at
    this m, the likeliest first, all legal. None where no model of times ranks configs."""
    if problem.batch_invariant or device.kind != "cuda":
        return []
    if problem.op == "moe":
        return heuristics_grouped_near.near(problem, device)
    return heuristics_cuda.runners_up(problem, device)


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    if problem.op == "moe":
        return heuristics_experts.heuristic_intervals(problem, device)
    if problem.batch_invariant:
        return invariant_intervals(problem, device)
    if device.kind == "cuda":
        return heuristics_cuda.heuristic_intervals(problem, device)
    return heuristics_cpu.heuristic_intervals(problem, device)
