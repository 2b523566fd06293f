"""The configs by which a batch-invariant layer is served: all of one order of sums, whatever m.
Pure. What has an order is spec/invariance.py; all other layers are heuristics.py and dispatcher.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from humming.dispatch import heuristics_cpu
from humming.dispatch.heuristics_mma import mma_default_of_order
from humming.errors import LegalityError
from humming.spec.config import CpuConfig, KernelConfig, MmaConfig
from humming.spec.device import Device
from humming.spec.invariance import Order, sum_order
from humming.spec.legality import config_violations
from humming.spec.problem import M_END, Problem

Span = tuple[int, int, KernelConfig]

_DECIDING_ROWS = 16
"""Rows for which the order is chosen where nothing was tuned: decoding in small batches."""
_STEPS = (0, 33, 49, 65, 97, 129, 257)


def invariant_intervals(
    problem: Problem, device: Device, base: KernelConfig | None = None
) -> list[Span]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps, all of the order of `base`, which
    serves where the family has nothing better for an m; None chooses one.

    Raises LegalityError where no family has an order that does not depend on m.
    """
    base = base or _base(problem, device)
    order = sum_order(base)
    if isinstance(base, CpuConfig):
        found = _on_cpu(problem, device, base)
    elif isinstance(base, MmaConfig) and order is not None:
        found = _by_mma(problem, device, base, order)
    else:
        found = [(0, M_END, base)]
    return _joined(found)


def _base(problem: Problem, device: Device) -> KernelConfig:
    at = problem.at(_DECIDING_ROWS)
    if device.kind == "cpu":
        return _plain(heuristics_cpu.heuristic(at, device))
    found = mma_default_of_order(at, device, _DECIDING_ROWS, None)
    if found is None:
        raise LegalityError(
            f"batch invariance must be served by family 'mma', but on '{device.name}' it cannot "
            f"run format '{problem.format}'; call humming.set_batch_invariant(False)"
        )
    return found


def _plain(config: CpuConfig) -> CpuConfig:
    """`config` with one set of sums along all of k: what any number of rows can have."""
    return replace(config, unroll=1, split_k=1)


def _on_cpu(problem: Problem, device: Device, base: CpuConfig) -> list[Span]:
    spans: list[Span] = []
    for low, high, config in heuristics_cpu.heuristic_intervals(problem, device):
        alike = (
            replace(config, unroll=base.unroll, split_k=base.split_k)
            if isinstance(config, CpuConfig)
            else base
        )
        legal = not config_violations(alike, problem.at(low), device)
        fits = legal and sum_order(alike) == sum_order(base)
        spans.append((low, high, alike if fits else base))
    return spans


def _by_mma(problem: Problem, device: Device, base: MmaConfig, order: Order) -> list[Span]:
    return [
        (low, high, mma_default_of_order(problem.at(high - 1), device, high - 1, order) or base)
        for low, high in pairwise([*_STEPS, M_END])
    ]


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for low, high, config in spans:
        if joined and joined[-1][2] == config:
            low = joined.pop()[0]
        joined.append((low, high, config))
    return joined
