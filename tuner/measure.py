"""The timing policy of CPUs, as functions over callables that each enqueue one call. What is called
is the worker's business.

A call is timed inside a walk over enough distinct weight sets to keep the last-level cache cold;
one sample is the mean over one stretch of the walk, which goes on where the last one ended. The
figure is the median of the samples.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

COLD_CACHES = 4
"""Bytes that a walk covers, in last-level caches: upstream flushes that were too small ranked
candidates wrongly."""

SAMPLES = 9
MIN_SAMPLES = 3
STRETCH_S = 0.012
LOSING = 1.5
"""A candidate whose first MIN_SAMPLES have a median above LOSING x the best known is not timed
further."""


def rotation(weight_bytes: int, cache_bytes: int, low: int = 2, high: int = 128) -> int:
    """How many weight sets of `weight_bytes` keep a cache of `cache_bytes` cold."""
    return max(low, min(high, -(-COLD_CACHES * cache_bytes // max(1, weight_bytes))))


def samples_us(
    calls: Sequence[Callable[[], object]], best_us: float | None = None, count: int = SAMPLES
) -> list[float]:
    """`count` samples of microseconds per call, fewer where the side is losing against `best_us`
    anyway."""
    walk = itertools.cycle(calls)
    next(walk)()
    stretch = _stretch(walk)
    samples: list[float] = []
    for _ in range(count):
        samples.append(_sample_us(walk, stretch))
        if (
            best_us is not None
            and len(samples) == MIN_SAMPLES
            and statistics.median(samples) > LOSING * best_us
        ):
            break
    return samples


def paired_us(
    sides: Sequence[Sequence[Callable[[], object]]],
    rounds: int,
    left_s: Callable[[], float],
    seed: int = 0,
) -> list[list[float]]:
    """One sample per side and round, sides in random order within a round; at least 3 rounds, then
    until `left_s()` is 0."""
    walks = [itertools.cycle(calls) for calls in sides]
    for walk in walks:
        next(walk)()
    stretches = [_stretch(walk) for walk in walks]
    draw = random.Random(seed)
    taken: list[list[float]] = [[] for _ in sides]
    for done in range(rounds):
        if done >= MIN_SAMPLES and left_s() <= 0.0:
            break
        order = list(range(len(sides)))
        draw.shuffle(order)
        for side in order:
            taken[side].append(_sample_us(walks[side], stretches[side]))
    return taken


def _stretch(walk: Iterator[Callable[[], object]]) -> int:
    """Calls per sample: about STRETCH_S of work."""
    start = time.perf_counter()
    next(walk)()
    once = time.perf_counter() - start
    return max(1, min(256, round(STRETCH_S / max(once, 1e-7))))


def _sample_us(walk: Iterator[Callable[[], object]], stretch: int) -> float:
    start = time.perf_counter_ns()
    for call in itertools.islice(walk, stretch):
        call()
    return (time.perf_counter_ns() - start) / 1e3 / stretch
