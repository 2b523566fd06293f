"""The timing policy: how samples are taken, cold, until a side has lost. How one sample is taken is
measure_cpu.py and measure_cuda.py; what is called is bench.py.

The figure of a side is the median of its samples. Every sample walks over enough distinct weight
sets to keep the last-level cache cold.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

COLD_CACHES = 4
"""Bytes that a walk covers, in last-level caches: flushes that are too small rank candidates
wrongly."""

SAMPLES = 9
MIN_SAMPLES = 3
BATCH = 12
"""Rounds after which paired sides are looked at."""

LOSING = 1.5
"""A candidate whose first MIN_SAMPLES have a median above LOSING x the best known is not timed
further."""

Sample = Callable[[], float]
"""Takes one sample: microseconds per call."""


def rotation(weight_bytes: int, cache_bytes: int, low: int = 2, high: int = 128) -> int:
    """How many weight sets of `weight_bytes` keep a cache of `cache_bytes` cold."""
    return max(low, min(high, -(-COLD_CACHES * cache_bytes // max(1, weight_bytes))))


def samples_us(sample: Sample, best_us: float | None = None, count: int = SAMPLES) -> list[float]:
    """`count` samples, fewer where the side is losing against `best_us` anyway."""
    samples: list[float] = []
    for _ in range(count):
        samples.append(sample())
        if (
            best_us is not None
            and len(samples) == MIN_SAMPLES
            and statistics.median(samples) > LOSING * best_us
        ):
            break
    return samples


def paired_us(
    sides: Sequence[Sample],
    rounds: int,
    left_s: Callable[[], float],
    seed: int = 0,
    enough: Callable[[list[list[float]]], bool] = lambda _: False,
    after_round: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """One sample per side and round, sides in random order within a round; at least MIN_SAMPLES
    rounds, then until `left_s()` is 0, or `enough(taken)`, asked every BATCH rounds, is true.
    `after_round` is called between rounds, outside of all times."""
    draw = random.Random(seed)
    taken: list[list[float]] = [[] for _ in sides]
    for done in range(rounds):
        if done >= MIN_SAMPLES and left_s() <= 0.0:
            break
        if done and done % BATCH == 0 and enough(taken):
            break
        order = list(range(len(sides)))
        draw.shuffle(order)
        for side in order:
            taken[side].append(sides[side]())
        after_round()
    return taken
