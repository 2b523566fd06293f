"""When a search has seen enough: the gain that as many trials again would bring is under the effect
that promotion asks for. Pure functions over times."""

from __future__ import annotations

from collections.abc import Collection

from tuner.promote import MIN_EFFECT

MIN_TRIALS = 16
PATIENCE = 12
"""Trials that must have passed at the least, and trials without news at the end of them."""

SMALL = 32
"""A space of so many candidates is tried to its end."""


def expected_gain(times: Collection[float]) -> float:
    """The part of the best time that as many trials again may be expected to save.

    What doubling the trials will bring is taken to be what doubling them has brought: the mean,
    over random halves, of how far a half's least time lies above the least of all. With times
    sorted, half of n draws misses the j fastest and holds the next with probability
    C(n-j-1, h-1) / C(n, h), a product of j + 1 ratios.
    """
    ordered = sorted(times)
    count, half = len(ordered), len(ordered) // 2
    if half < 1:
        return 1.0
    best, mean, missed = ordered[0], 0.0, 1.0
    for index, us in enumerate(ordered):
        left = count - index
        if left < half:
            break
        held = half / left
        mean += missed * held * us
        missed *= 1.0 - held
    return 1.0 - best / mean


def stop(times: Collection[float], since_news: int) -> bool:
    """Whether a search ends by rule."""
    if len(times) < MIN_TRIALS or since_news < PATIENCE:
        return False
    return expected_gain(times) < MIN_EFFECT
