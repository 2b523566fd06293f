"""The median of a few numbers with an interval that holds whatever their noise, and how likely luck
is. Pure; what is decided by them is transfer.py, and the tuner's races."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

CONFIDENCE = 0.95


def interval_of_median(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that holds the median with CONFIDENCE, whatever the
    noise; the whole range where there are too few values for that.

    Source: Conover, Practical Nonparametric Statistics, 1999 (section 3.2).
    """
    ordered = sorted(values)
    cut = _cut(len(ordered))
    return ordered[cut], ordered[-1 - cut]


def by_luck(wins: int, trials: int) -> float:
    """How likely so many wins of so many trials are, or more, where each is won as often as lost:
    the sign test. Source: Dixon and Mood, The Statistical Sign Test, JASA 41, 1946."""
    return float(sum(math.comb(trials, won) for won in range(wins, trials + 1)) / 2**trials)


@lru_cache(maxsize=256)
def _cut(count: int) -> int:
    """How many values may be left out at each end."""
    outside = 0.0
    for cut in range(count // 2):
        outside += math.comb(count, cut) / 2 ** (count - 1)
        if outside > 1.0 - CONFIDENCE:
            return max(0, cut - 1)
    return max(0, count // 2 - 1)
