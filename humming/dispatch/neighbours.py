"""Whose config an untuned problem may take, and over which m. Pure; what that is worth is
transfer.py, what serves in the end dispatcher.py.

A config travels in one of two ways: from another layer to ours at the same m, or from our layer's
tuned m to another. Each problem that was tuned is left out in turn, with all that is nearer to it
than the neighbour in question is to ours; what its nearest neighbour would then have given it is
known, as the tuner tried it there. What was not tried counts as lost, so that less evidence never
says more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import REACH, Interval, TableEntry, Trials, serve_intervals
from humming.dispatch.transfer import LeftOut, Transfer, judge
from humming.errors import LegalityError
from humming.spec.config import KernelConfig, config_id
from humming.spec.device import Device
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

NEAR = 2
"""Problems whose m is within this factor are evidence for each other."""
MOST_LAYERS = 32
"""The layers nearest to ours are looked at, no more."""
_SLACK = 1e-9

Way = Literal["m", "shape"]
WAYS: tuple[Way, ...] = ("m", "shape")

Legal = Callable[[KernelConfig, Problem], bool]
"""Whether a config may run a problem, its m included."""


class Offer(NamedTuple):
    """`interval`'s config may serve every m of [low, high)."""

    low: int
    high: int
    interval: Interval
    transfer: Transfer


class _Donor(NamedTuple):
    """A neighbour's record, and how many doublings away it is."""

    distance: float
    entry: TableEntry
    interval: Interval


def kind_of(problem: Problem) -> Problem:
    """What problems must have in common to learn from each other: all but shape, m and bias."""
    return replace(problem, n=1, k=1, m=0, bias=False)


def offers(
    problem: Problem,
    device: Device,
    entries: Sequence[TableEntry],
    gaps: Sequence[tuple[int, int]],
    refused: frozenset[KernelConfig] = frozenset(),
    legal: Legal | None = None,
) -> Iterator[Offer]:
    """What `problem` (its m does not count) may take over `gaps`, the half-open intervals of m that
    nothing tuned serves, by `entries` of one machine. A batch-invariant layer takes nothing, as its
    configs must all be of one order of sums. `legal` says what may run, by default the rules."""
    kind = kind_of(problem)
    alike = [entry for entry in entries if kind_of(entry.problem) == kind]
    tuned_at = {trials.m for entry in alike for trials in entry.trials}
    if not gaps or not tuned_at or problem.batch_invariant:
        return
    pool = _Pool(problem, device, alike, refused, legal)
    for low, high, m, _ in serve_intervals((m, None) for m in tuned_at):
        parts = [(max(low, a), min(high, b)) for a, b in gaps if a < high and b > low]
        for way in WAYS if parts else ():
            found = pool.offer(m, way)
            if found is None:
                continue
            interval, transfer = found
            for first, end in parts:
                if way == "shape":
                    first, end = max(first, interval.m_low), min(end, interval.m_high)
                if first < end and pool.legal(interval.config, first, end - 1):
                    yield Offer(first, end, interval, transfer)
            break


def wanted(
    problem: Problem,
    device: Device,
    entries: Sequence[TableEntry],
    most: int,
    legal: Legal | None = None,
) -> list[KernelConfig]:
    """Configs that leave-one-out may ask about at the tuned `problem`, its m included: what up to
    `most` neighbours in each way would give it, the nearest first. `entries` are one machine's."""
    kind = kind_of(problem)
    alike = [entry for entry in entries if kind_of(entry.problem) == kind]
    pool = _Pool(problem, device, alike, legal=legal)
    found: dict[KernelConfig, None] = {}
    for way in WAYS:
        configs = dict.fromkeys(donor.interval.config for donor in pool.legal_ones(problem, way))
        found |= dict.fromkeys(list(configs)[:most])
    return list(found)


class _Pool:
    """Entries of one kind and machine, those nearest to a problem, and what they say about it."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        entries: Sequence[TableEntry],
        refused: frozenset[KernelConfig] = frozenset(),
        legal: Legal | None = None,
    ) -> None:
        ordered = sorted(entries, key=lambda entry: _order(entry, problem))
        near = list(dict.fromkeys(_layer(entry.problem) for entry in ordered))[:MOST_LAYERS]
        self._entries = [entry for entry in ordered if _layer(entry.problem) in near]
        self._problem, self._device, self._refused = problem, device, refused
        self._legal: Legal = legal or (lambda config, at: _legal(config, at, device))
        self._failed = {
            id
            for entry in self._entries
            for trials in entry.trials
            for id, ratio in trials.ratios
            if ratio is None
        }

    def offer(self, m: int, way: Way) -> tuple[Interval, Transfer] | None:
        """The record whose config may serve at `m`, and what to expect; None where nothing is
        proved, or where the heuristic would serve the same."""
        donor = self._donor(self._problem, m, way, 0.0)
        default = _default(self._problem.at(m), self._device)
        if donor is None or donor.interval.config == default:
            return None
        of = donor.entry.problem.at(donor.interval.m)
        transfer = judge(self._left_out(m, way, donor.distance), of)
        return None if transfer is None else (donor.interval, transfer)

    def legal(self, config: KernelConfig, *ms: int) -> bool:
        """Whether `config` may serve the problem at all of `ms`."""
        return all(self._legal(config, self._problem.at(max(m, 1))) for m in ms)

    def legal_ones(self, problem: Problem, way: Way) -> Iterator[_Donor]:
        """The neighbours of `problem`, its m included, that may run there, the nearest first."""
        for donor in (self._of_m if way == "m" else self._of_shape)(problem, problem.m):
            if self._legal(donor.interval.config, problem):
                yield donor

    def _donor(self, problem: Problem, m: int, way: Way, radius: float) -> _Donor | None:
        """The nearest neighbour of `problem` at `m`, no nearer than `radius`, that may run there
        and failed nowhere."""
        for donor in self.legal_ones(problem.at(m), way):
            config = donor.interval.config
            good = config not in self._refused and _id(config) not in self._failed
            if good and donor.distance >= radius - _SLACK:
                return donor
        return None

    def _of_shape(self, problem: Problem, m: int) -> Iterator[_Donor]:
        """What other layers are served by at `m`, the nearest layer first."""
        for entry in sorted(self._entries, key=lambda entry: _order(entry, problem)):
            if _layer(entry.problem) != _layer(problem):
                for interval in entry.intervals:
                    if interval.m_low <= m < interval.m_high:
                        yield _Donor(_apart(entry.problem, problem), entry, interval)

    def _of_m(self, problem: Problem, m: int) -> Iterator[_Donor]:
        """The layer's own records of other m, the nearest first."""
        found = [
            _Donor(math.log2(_factor(m, interval.m)), entry, interval)
            for entry in self._entries
            for interval in entry.intervals
            if _layer(entry.problem) == _layer(problem)
            and m != interval.m
            and _factor(m, interval.m) <= REACH
        ]
        yield from sorted(found, key=lambda d: (d.distance, d.interval.m, _order(d.entry, problem)))

    def _left_out(self, m: int, way: Way, radius: float) -> Iterator[LeftOut]:
        """What each problem near `m` would have got from a neighbour no nearer than `radius`."""
        for entry in self._entries:
            for trials in entry.trials:
                ours = _layer(entry.problem) == _layer(self._problem) and trials.m == m
                if ours or _factor(trials.m, m) > NEAR:
                    continue
                donor = self._donor(entry.problem, trials.m, way, radius)
                if donor is not None and _id(donor.interval.config) != trials.heuristic:
                    lost = self._lost(entry.problem, trials, donor.interval.config)
                    yield lost._replace(here=trials.m == m)

    def _lost(self, problem: Problem, trials: Trials, config: KernelConfig) -> LeftOut:
        """What `config` took at a problem that was left out: unknown where the heuristic that it
        was compared with is no longer this version's."""
        default = _default(problem.at(trials.m), self._device)
        same = default is not None and _id(default) == trials.heuristic
        known = {id: ratio for id, ratio in trials.ratios if ratio is not None}
        ratio = known.get(_id(config), math.inf) if same else math.inf
        return LeftOut(_layer(problem), ratio, ratio / min([1.0, *known.values()]) - 1.0)


def _layer(problem: Problem) -> tuple[int, int]:
    return problem.n, problem.k


def _order(entry: TableEntry, problem: Problem) -> tuple[float, int, int, bool, str]:
    """Sorts entries by how far from `problem` they are, equals in an order of their own."""
    of = entry.problem
    return _apart(of, problem), of.n, of.k, of.bias != problem.bias, of.id


def _apart(one: Problem, other: Problem) -> float:
    """Doublings of n and k between two layers."""
    return abs(math.log2(one.n / other.n)) + abs(math.log2(one.k / other.k))


def _factor(one: int, other: int) -> float:
    return max(one, other) / min(one, other)


@lru_cache(maxsize=4096)
def _id(config: KernelConfig) -> str:
    return config_id(config)


@lru_cache(maxsize=65536)
def _legal(config: KernelConfig, problem: Problem, device: Device) -> bool:
    return not config_violations(config, problem, device)


@lru_cache(maxsize=4096)
def _default(problem: Problem, device: Device) -> KernelConfig | None:
    """The heuristic's config; None where this version runs the problem no more."""
    try:
        return heuristic(problem, device)
    except LegalityError:
        return None
