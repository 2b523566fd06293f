"""Promotion: which config is served, decided from paired samples alone. Pure functions; nothing is
timed or stored here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MIN_EFFECT = 0.02
"""A challenger must be at least this much faster than the incumbent, at the upper end of its
interval."""

MIN_ROUNDS = 8
"""Fewer rounds prove nothing: of three, all favour one of two equals once in eight times."""

LUCK = 0.005
"""How likely, at the most, as many rounds may favour a challenger whose true gain is MIN_EFFECT.
Small, as several challengers race, and are looked at several times."""

_RESAMPLES = 400


@dataclass(frozen=True)
class Interval:
    """A ratio of times with its 95 % interval."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """The index of the config to serve, and its ratio to the incumbent (index 0)."""

    winner: int
    interval: Interval


def ratios_of(challenger: Sequence[float], incumbent: Sequence[float]) -> list[float]:
    """challenger / incumbent of each round that both ran: a side that was dropped ran the first
    ones only."""
    return [c / i for c, i in zip(challenger, incumbent, strict=False)]


def paired_ratio(challenger: Sequence[float], incumbent: Sequence[float]) -> Interval:
    """Median over rounds of challenger / incumbent, with a bootstrap interval over rounds.

    Both sides hold one time per round, so that drift of the clock cancels within a round. Source:
    Efron and Tibshirani, An Introduction to the Bootstrap, 1993 (percentile interval). The seed is
    fixed: the same samples always give the same verdict.
    """
    ratios = ratios_of(challenger, incumbent)
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    cut = int(0.025 * _RESAMPLES)
    return Interval(statistics.median(ratios), medians[cut], medians[-1 - cut])


def proven(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    """Whether a challenger is faster by MIN_EFFECT at least: its whole interval says so, and so do
    more rounds than luck gives.

    The second is the sign test, which holds for any noise, heavy tails and spikes included.
    Source: Dixon and Mood, The Statistical Sign Test, JASA 41, 1946.
    """
    ratios = ratios_of(challenger, incumbent)
    rounds = len(ratios)
    if rounds < MIN_ROUNDS:
        return False
    bar = 1.0 - MIN_EFFECT
    favourable = sum(ratio < bar for ratio in ratios)
    by_luck = sum(math.comb(rounds, wins) for wins in range(favourable, rounds + 1)) / 2**rounds
    return by_luck <= LUCK and paired_ratio(challenger, incumbent).high < bar


def undecided(rounds: Sequence[Sequence[float]]) -> bool:
    """Whether more rounds could still prove a challenger that these do not: its interval reaches
    below 1 - MIN_EFFECT."""
    incumbent = rounds[0]
    return any(
        paired_ratio(challenger, incumbent).low < 1.0 - MIN_EFFECT
        and not proven(challenger, incumbent)
        for challenger in rounds[1:]
    )


def decide(rounds: Sequence[Sequence[float]]) -> Verdict:
    """Which of several configs to serve. `rounds[i][r]` is the time of config i in round r; config
    0 is the incumbent. A side that was dropped has the first rounds only.

    A challenger wins only where it is `proven`. Of several that differ by less than MIN_EFFECT the
    first in order wins, so that tunings whose noise differs serve the same. Inside noise the
    incumbent stays.
    """
    winners = [side for side in range(1, len(rounds)) if proven(rounds[side], rounds[0])]
    if not winners:
        return Verdict(0, Interval(1.0, 1.0, 1.0))
    best = winners[0]
    for side in winners[1:]:
        if statistics.median(ratios_of(rounds[side], rounds[best])) < 1.0:
            best = side
    first = next(side for side in winners if not proven(rounds[best], rounds[side]))
    return Verdict(first, paired_ratio(rounds[first], rounds[0]))
