"""How samples are taken: warmed up, cold, until a side has lost. How one sample is taken is
samples_cpu.py and samples_cuda.py; what is called is tuner/worker/bench.py; the figures are
policy.py's.

The figure of a side is the median of its samples. Every sample walks over enough distinct weight
sets to keep the last-level cache cold.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tuner.measuring.policy import CPU, Policy

LOOK = 6
"""Rounds after which paired sides are looked at."""

LEAST_ROUNDS = 3

Sample = Callable[[], float]
"""Takes one sample: microseconds per call."""


class Dealt:
    """Samples of which `same` in a row come from one deal, all where it is None. A deal makes what
    is sampled anew, at other places in memory."""

    def __init__(self, deal: Callable[[], Sample], same: int | None) -> None:
        self._deal, self._same = deal, same
        self._sample, self._left = deal(), same

    def __call__(self) -> float:
        if self._left == 0:
            self._sample, self._left = self._deal(), self._same
        if self._left is not None:
            self._left -= 1
        return self._sample()

    def again(self) -> float:
        """A sample of this deal that counts for nothing."""
        return self._sample()


@dataclass(frozen=True)
class WarmUp:
    """How a device came to its working clock: samples thrown away, and whether the last ones
    agreed."""

    samples: int
    steady: bool


def rotation(weight_bytes: int, cache_bytes: int, policy: Policy = CPU, low: int = 2) -> int:
    """How many weight sets of `weight_bytes` keep a cache of `cache_bytes` cold."""
    wanted = -(-policy.cold_caches * cache_bytes // max(1, weight_bytes))
    return max(low, min(policy.most_sets, wanted))


def warm_up(sample: Sample, policy: Policy, now: Callable[[], float] = time.monotonic) -> WarmUp:
    """Take samples until the clock is steady: `steady_run` of them in a row lie within
    `steady_share` of each other, or `warm_up_s` are over."""
    end = now() + policy.warm_up_s
    run: list[float] = []
    taken = 0
    while True:
        run = [*run, sample()][-policy.steady_run :]
        taken += 1
        if len(run) == policy.steady_run and max(run) <= (1.0 + policy.steady_share) * min(run):
            return WarmUp(taken, True)
        if now() >= end:
            return WarmUp(taken, False)


def samples_us(sample: Sample, policy: Policy, best_us: float | None = None) -> list[float]:
    """The policy's samples, fewer where the side is losing against `best_us` anyway.

    The least of n samples lies above the true median once in 2**n times only: it is the lower end
    of that median's interval.
    """
    samples: list[float] = []
    for _ in range(policy.samples):
        samples.append(sample())
        if (
            best_us is not None
            and len(samples) >= policy.least_samples
            and min(samples) > policy.losing * best_us
        ):
            break
    return samples


def paired_us(
    sides: Sequence[Sample],
    rounds: int,
    left_s: Callable[[], float],
    seed: int = 0,
    racing: Callable[[list[list[float]]], Collection[int]] | None = None,
    after_round: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """One sample per side and round, sides in random order within a round; at least LEAST_ROUNDS
    rounds, then until `left_s()` is 0.

    Every LOOK rounds `racing(taken)` says which sides go on; a race with fewer than two ends. So a
    side's samples are those of the first rounds, as many as it ran. `after_round` is called between
    rounds, outside of all times.
    """
    draw = random.Random(seed)
    taken: list[list[float]] = [[] for _ in sides]
    going = list(range(len(sides)))
    for done in range(rounds):
        if done >= LEAST_ROUNDS and left_s() <= 0.0:
            break
        if racing is not None and done and done % LOOK == 0:
            wanted = racing(taken)
            going = [side for side in going if side in wanted]
            if len(going) < 2:
                break
        draw.shuffle(going)
        for side in going:
            taken[side].append(sides[side]())
        after_round()
    return taken
