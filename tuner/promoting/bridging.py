"""Which config serves each m between anchors. Winners are measured at the others' m and between
them; an interval is split until what serves loses no more than REGRET to anything that is known.

Pure over an oracle that measures: cross_measuring.py on a device, a recorded sweep in
benchmarks/replay.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isqrt
from typing import Protocol

from humming.spec.config import KernelConfig

REGRET = 0.03
"""What a served config may lose, at any m, to the best that is known there."""

ALLOWED = 0.02
"""What it may lose where it is measured: the rest of REGRET is for the m between."""

DENSE = 1.5
"""Measured m are at most this factor apart; between them times are taken to run evenly, but for the
steps at whole tiles."""

EACH = 16
"""Each m up to this is measured: a row more or less is much of a tile."""

STEPS = 6
"""Steps at whole tiles that are measured: the j-th costs one part in j."""

Times = Mapping[KernelConfig, float]


@dataclass(frozen=True)
class Segment:
    """`config` serves every m of [low, high); it was measured at `at`, among them."""

    low: int
    high: int
    at: int
    config: KernelConfig


class Oracle(Protocol):
    """What can be measured."""

    def times(self, m: int, configs: Sequence[KernelConfig]) -> Times | None:
        """Microseconds at `m` of those that can run there, in paired rounds; None where no time is
        left."""

    def tuned(self, m: int, known: Sequence[KernelConfig]) -> KernelConfig | None:
        """The winner of a search at `m` that starts from `known`; None where no time is left."""


def bridge(
    winners: Mapping[int, KernelConfig], oracle: Oracle, only: Sequence[int] | None = None
) -> list[Segment]:
    """Sorted, disjoint segments without a gap from the least anchor to the largest, one past it.

    `winners` are the anchors'; `only` names the m that can be measured, all where it is None. Where
    no time is left an anchor serves up to the middle between it and its neighbour, as without any
    measuring.
    """
    points = dict(winners)
    for low, high in itertools.pairwise(sorted(winners)):
        _fill(points, low, high, oracle, only)
    return list(_segments(points, oracle, only))


def _fill(
    points: dict[int, KernelConfig],
    low: int,
    high: int,
    oracle: Oracle,
    only: Sequence[int] | None,
) -> None:
    """Chooses a config at m between two points until points are dense."""
    m = _between(points, low, high, only)
    if m is None:
        return
    found = _choice(points, m, low, high, oracle)
    if found is None:
        return
    points[m] = found
    _fill(points, low, m, oracle, only)
    _fill(points, m, high, oracle, only)


def _between(
    points: Mapping[int, KernelConfig], low: int, high: int, only: Sequence[int] | None
) -> int | None:
    """The m to look at next: the middle of a wide interval, then the m just above whole tiles of
    the config that serves below."""
    middle = _nearest(isqrt(low * high), low, high, only)
    if middle is None:
        return None
    if high > DENSE * low or low < EACH:
        return middle
    tile = points[low].block_m
    above = -(-low // tile) * tile + 1
    if low < above < high and above <= STEPS * tile + 1:
        return _nearest(above, low, high, only)
    return None


def _nearest(m: int, low: int, high: int, only: Sequence[int] | None) -> int | None:
    """The m nearest to a wanted one that lies between `low` and `high`; None where there is
    none."""
    if only is None:
        return min(max(m, low + 1), high - 1) if high - low > 1 else None
    inside = [value for value in only if low < value < high]
    return min(inside, key=lambda value: abs(value - m)) if inside else None


def _choice(
    points: Mapping[int, KernelConfig], m: int, low: int, high: int, oracle: Oracle
) -> KernelConfig | None:
    """The neighbour's config where that is good enough, so that equals merge; else the best."""
    pool = list(dict.fromkeys([points[low], points[high], *points.values()]))
    best = oracle.tuned(m, pool)
    times = oracle.times(m, list(dict.fromkeys([*pool, *([best] if best else [])])))
    if not times:
        return best
    least = min(times.values())
    for config in pool:
        if times.get(config, inf) <= (1.0 + ALLOWED) * least:
            return config
    return min(times, key=lambda config: times[config])


def _segments(
    points: Mapping[int, KernelConfig], oracle: Oracle, only: Sequence[int] | None
) -> Iterator[Segment]:
    ordered = sorted(points)
    low = ordered[0]
    for left, right in itertools.pairwise(ordered):
        if points[left] != points[right]:
            meet = _meet(points[left], points[right], left, right, oracle, only)
            yield Segment(low, meet, left, points[left])
            low = meet
    yield Segment(low, ordered[-1] + 1, ordered[-1], points[ordered[-1]])


def _meet(
    left: KernelConfig,
    right: KernelConfig,
    low: int,
    high: int,
    oracle: Oracle,
    only: Sequence[int] | None,
) -> int:
    """The first m above `low` that `right` serves: where it becomes the faster one."""
    while high * 10 > low * 11:
        middle = _nearest((low + high) // 2, low, high, only)
        times = oracle.times(middle, [left, right]) if middle is not None else None
        if middle is None or times is None or not times:
            break
        if times.get(left, inf) <= times.get(right, inf):
            low = middle
        else:
            high = middle
    return isqrt(low * high - 1) + 1 if high - low > 1 else high


def regret_at(segments: Iterable[Segment], times: Mapping[int, Times]) -> dict[int, float]:
    """m -> what the config that serves it loses to the best that is known there."""
    found: dict[int, float] = {}
    for segment in segments:
        for m, at in times.items():
            if segment.low <= m < segment.high:
                served = at.get(segment.config, inf)
                found[m] = served / min(at.values()) - 1.0
    return found
