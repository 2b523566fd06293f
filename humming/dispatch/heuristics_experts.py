"""The config that serves the experts of a mixture where nothing was measured: that of a dense layer
with as many rows as an expert that is met has in the mean. GPUs have grouped kernels of their own:
heuristics_grouped.py."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from humming.dispatch import heuristics_cpu
from humming.dispatch.heuristics_grouped import grouped
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import M_END, Problem

STEPS = (0, *(2**power for power in range(1, 21)))
"""Where intervals of m, tokens, begin."""


def heuristic(problem: Problem, device: Device) -> KernelConfig:
    """The default config of the experts `problem` (its m counts) on `device`."""
    low = [step for step in STEPS if step <= problem.m][-1]
    if device.kind == "cuda":
        return grouped(problem.at(low), device)
    return heuristics_cpu.heuristic(of_one_expert(problem.at(low)), device)


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    intervals: list[tuple[int, int, KernelConfig]] = []
    for low, high in pairwise([*STEPS, M_END]):
        config = heuristic(problem.at(low), device)
        if intervals and intervals[-1][2] == config:
            low = intervals.pop()[0]
        intervals.append((low, high, config))
    return intervals


def of_one_expert(problem: Problem) -> Problem:
    """The dense problem of an expert with the mean number of rows."""
    return replace(
        problem, op="dense", experts=None, top_k=None, routing=None, m=problem.rows_of_expert
    )
