"""One sample on a CPU: the mean over one stretch of a walk, which goes on where the last one ended.
When and how often is measure.py."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from tuner.measure import Sample

STRETCH_S = 0.012


def cpu_sample(calls: Sequence[Callable[[], object]]) -> Sample:
    """Samples of `calls`, each one call on a weight set of its own; the first of them warms up."""
    walk = itertools.cycle(calls)
    next(walk)()
    stretch = _stretch(walk)

    def sample() -> float:
        start = time.perf_counter_ns()
        for call in itertools.islice(walk, stretch):
            call()
        return (time.perf_counter_ns() - start) / 1e3 / stretch

    return sample


def _stretch(walk: Iterator[Callable[[], object]]) -> int:
    """Calls per sample: about STRETCH_S of work."""
    start = time.perf_counter()
    next(walk)()
    once = time.perf_counter() - start
    return max(1, min(256, round(STRETCH_S / max(once, 1e-7))))
