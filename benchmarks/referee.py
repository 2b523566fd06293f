"""Which of several configs of one problem is faster, asked anew: paired rounds in several openings
of the problem, whose tensors lie elsewhere each time. What is asked is trust.py's and resumed.py's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from humming.jit.cache import CompiledKernel
from humming.spec.config import KernelConfig, config_id
from humming.spec.device import Device
from humming.spec.problem import Problem
from tuner.measuring.conditions import clean_rounds
from tuner.promoting.verdict import MIN_ROUNDS, paired_ratio, proven
from tuner.searching.compile_pool import compile_all
from tuner.worker.isolation import Worker
from tuner.worker.messages import Open, Race, Raced

OPENINGS = 3
ROUNDS = 12
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Referee:
    """Paired rounds of `configs`, which are as many as `rounds_us` has rows: those under good
    conditions, or all of them where they are not `clean`."""

    configs: tuple[KernelConfig, ...]
    rounds_us: tuple[tuple[float, ...], ...]
    clean: bool

    def median_us(self, config: KernelConfig) -> float:
        """Microseconds."""
        return statistics.median(self.rounds_us[self.configs.index(config)])

    @property
    def best(self) -> KernelConfig:
        """The one with the least median."""
        return min(self.configs, key=self.median_us)

    def against(self, one: KernelConfig, other: KernelConfig) -> dict[str, Any]:
        """one / other, with its interval. A tie: neither is proven faster, by promotion's rule."""
        ours = self.rounds_us[self.configs.index(one)]
        theirs = self.rounds_us[self.configs.index(other)]
        tie = not proven(ours, theirs) and not proven(theirs, ours)
        seen = asdict(paired_ratio(ours, theirs))
        return {**seen, "rounds": len(ours), "tie": tie, "clean": self.clean}


def referee(
    configs: Sequence[KernelConfig],
    problem: Problem,
    device: Device,
    worker: Worker,
    openings: int = OPENINGS,
    rounds: int = ROUNDS,
) -> Referee:
    """Times those of `configs` that compile. Raises WorkerLostError where one takes the worker
    along."""
    distinct = list({config_id(config): config for config in configs}.values())
    kernels = compile_all(distinct, problem, device)
    line = [
        (config, kernel)
        for config, kernel in zip(distinct, kernels, strict=True)
        if isinstance(kernel, CompiledKernel)
    ]
    clean: list[list[float]] = [[] for _ in line]
    taken: list[list[float]] = [[] for _ in line]
    for _ in range(openings):
        worker.open(Open(problem, max(problem.m, 1), problem.m + 1), TIMEOUT_S)
        request = Race(tuple(kernel for _, kernel in line), rounds, TIMEOUT_S / 2, problem.m)
        raced = worker.ask(request, TIMEOUT_S)
        assert isinstance(raced, Raced)
        for side, times in enumerate(clean_rounds(raced.samples_us, raced.conditions)):
            clean[side].extend(times)
            taken[side].extend(raced.samples_us[side])
    good = len(clean[0]) >= MIN_ROUNDS
    rounds_us = tuple(tuple(side) for side in (clean if good else taken))
    return Referee(tuple(config for config, _ in line), rounds_us, good)
