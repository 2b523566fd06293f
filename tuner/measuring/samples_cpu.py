"""One sample on a CPU: the mean over one stretch of a walk, which goes on where the last one ended.
When and how often is samples.py."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from tuner.measuring.policy import CPU
from tuner.measuring.samples import Sample

CALIBRATION_CALLS = 8


def cpu_sample(calls: Sequence[Callable[[], object]], stretch_s: float | None = None) -> Sample:
    """Samples of `calls`, each one call on a weight set of its own; the first of them warms up.
    `stretch_s` is by default the policy's."""
    walk = itertools.cycle(calls)
    next(walk)()
    stretch = _stretch(walk, stretch_s or CPU.stretch_s or 0.0)

    def sample() -> float:
        start = time.perf_counter_ns()
        for call in itertools.islice(walk, stretch):
            call()
        return (time.perf_counter_ns() - start) / 1e3 / stretch

    return sample


def _stretch(walk: Iterator[Callable[[], object]], stretch_s: float) -> int:
    """Calls per sample: about `stretch_s` of work by the fastest of a few calls.

    One call alone may meet another process on its core; a side that then takes single calls per
    sample is judged by other noise than its opponent.
    """
    fastest, left_s = float("inf"), stretch_s
    for _ in range(CALIBRATION_CALLS):
        start = time.perf_counter()
        next(walk)()
        took = time.perf_counter() - start
        fastest, left_s = min(fastest, took), left_s - took
        if left_s <= -stretch_s:
            break
    return max(1, min(256, round(stretch_s / max(fastest, 1e-7))))
