"""What leave-one-out says of a neighbour's config: whether it beats the heuristic where nothing was
tuned, and what to expect of it. Pure statistics; who is whose neighbour is neighbours.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from humming.dispatch.medians import by_luck, interval_of_median
from humming.spec.naming import counted
from humming.spec.problem import Problem

LEAST_PROBLEMS, LEAST_LAYERS = 8, 4
"""Fewer prove nothing: the layers of one model, at two m."""
MIN_EFFECT = 0.02
"""The time over the heuristic's must be less by this, at the upper end of its interval: a tie keeps
the heuristic."""
LUCK = 1 / 16
"""How likely, at the most, as many layers may gain by luck."""


@dataclass(frozen=True)
class Estimate:
    """A median over problems that were left out, with its 95 % interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Transfer:
    """Whose config was taken, and what leave-one-out says to expect of it.

    `problem` is what the config won at, its m included. `ratio` is the time over the heuristic's,
    `regret` what is lost to the best that a tuning would find; by `problems` of `layers` layers.
    """

    problem: Problem
    ratio: Estimate
    regret: Estimate
    problems: int
    layers: int

    def __str__(self) -> str:
        of, ratio, regret = self.problem, self.ratio, self.regret
        return (
            f"transfer from {of.format} n={of.n} k={of.k} m={of.m}; expected {ratio.median:.2f} x "
            f"the heuristic's time ({ratio.low:.2f} to {ratio.high:.2f}), regret "
            f"{regret.median:.1%} ({regret.low:.1%} to {regret.high:.1%}), by {self.problems} "
            f"problems of {counted(self.layers, 'layer')} left out"
        )


class LeftOut(NamedTuple):
    """A tuned problem that was left out: its layer's (n, k), and what its neighbour's config takes
    over the heuristic's time, and over the best known less one. Infinite where nobody tried.
    `here` is whether its m is ours too."""

    layer: tuple[int, int]
    ratio: float
    regret: float
    here: bool = True


def judge(left: Iterable[LeftOut], problem: Problem) -> Transfer | None:
    """What `left` say of configs taken from neighbours such as `problem`; None where they do not
    prove that these beat the heuristic: all together, and layer by layer.

    The heuristic of another m may be another config, and better or worse: where enough is known at
    ours, it alone counts, and what little there is must gain as well. A greater ratio never turns
    None into an answer.
    """
    found = list(left)
    here = [one for one in found if one.here]
    if _enough(here):
        found = here
    elif not _enough(found) or not _gains(here):
        return None
    layers: dict[tuple[int, int], list[float]] = {}
    for one in found:
        layers.setdefault(one.layer, []).append(one.ratio)
    gaining = sum(statistics.median(ratios) < 1.0 for ratios in layers.values())
    ratio = _estimate([one.ratio for one in found])
    if by_luck(gaining, len(layers)) > LUCK or not ratio.high < 1.0 - MIN_EFFECT:
        return None
    regret = _estimate([one.regret for one in found])
    return Transfer(problem, ratio, regret, len(found), len(layers))


def _enough(left: Sequence[LeftOut]) -> bool:
    return len(left) >= LEAST_PROBLEMS and len({one.layer for one in left}) >= LEAST_LAYERS


def _gains(left: Sequence[LeftOut]) -> bool:
    return bool(left) and statistics.median(one.ratio for one in left) < 1.0 - MIN_EFFECT


def _estimate(values: Sequence[float]) -> Estimate:
    return Estimate(statistics.median(values), *interval_of_median(values))
