"""When a search has seen enough: what more trials may gain is under the effect that promotion asks
for. The expectation is surrogate.py's."""

from __future__ import annotations

from tuner.promoting.verdict import MIN_EFFECT

MIN_TRIALS = 16
PATIENCE = 12
"""Trials that must have passed at the least, and trials without news at the end of them."""

SMALL = 32
"""A space of so many candidates is tried to its end."""


def stop(passed: int, since_news: int, expected_gain: float) -> bool:
    """Whether a search ends by rule, after `passed` trials that gave a time."""
    return passed >= MIN_TRIALS and since_news >= PATIENCE and expected_gain < MIN_EFFECT
