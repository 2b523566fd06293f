"""Which sides of a race go on: losers are dropped by the confidence interval of their paired ratio,
and a race that is decided ends. Pure functions over samples; the verdict is verdict.py's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from humming.dispatch.medians import interval_of_median
from tuner.promoting.verdict import MIN_EFFECT, MIN_ROUNDS, ratios_of, undecided

PROOF_ROUNDS = 12
"""Rounds between looks at proofs. Each look is a chance for luck; looks at losers are not."""


def going_on(rounds: Sequence[Sequence[float]], look_at_proofs: bool = True) -> list[int]:
    """The sides that more rounds could still make the winner, the incumbent (side 0) among them;
    the incumbent alone where the race is decided, which is asked with `look_at_proofs` only.

    `rounds[i]` are the times of side i in the rounds that it ran, which are the first ones. A side
    is dropped where its interval says that it gains less than MIN_EFFECT on the incumbent, or loses
    more than that to the leader of those that ran as long.
    """
    longest = len(rounds[0])
    if not longest:  # no round was worth anything yet
        return list(range(len(rounds)))
    alive = [side for side in range(1, len(rounds)) if len(rounds[side]) == longest]
    alive = [side for side in alive if _may_win(rounds[side], rounds[0])]
    if alive:
        leader = min(alive, key=lambda side: statistics.median(ratios_of(rounds[side], rounds[0])))
        alive = [
            side
            for side in alive
            if side == leader
            or interval_of_median(ratios_of(rounds[side], rounds[leader]))[0] <= 1.0 + MIN_EFFECT
        ]
    if look_at_proofs and longest >= MIN_ROUNDS:
        field = [rounds[0], *(rounds[side] for side in alive)]
        if not undecided(field):
            return [0]
    return [0, *alive]


def _may_win(challenger: Sequence[float], incumbent: Sequence[float]) -> bool:
    return interval_of_median(ratios_of(challenger, incumbent))[0] < 1.0 - MIN_EFFECT
