"""Tuned intervals of m as plain values, and the rule by which an anchor serves its neighbourhood.

Files are tables.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isqrt
from pathlib import Path
from typing import TypeVar

from humming.errors import TableError
from humming.spec.config import KernelConfig
from humming.spec.identity import Identity
from humming.spec.problem import M_END, Problem

REACH = 4
"""An anchor measured at m serves at most from m / REACH to m * REACH.

Beyond that nobody knows, so the heuristic serves.
"""

Payload = TypeVar("Payload")


@dataclass(frozen=True)
class Interval:
    """`config` serves every m of [m_low, m_high); it was measured at `m`.

    `us` and `heuristic_us` are the medians at `m` of this config and of the heuristic one, in
    microseconds; `record` is the id of the winner in the store that it came from.
    """

    m_low: int
    m_high: int
    m: int
    config: KernelConfig
    us: float
    heuristic_us: float
    record: str


@dataclass(frozen=True)
class Trials:
    """What neighbours' configs took at one `m` of a layer that was tuned there.

    `ratios` are pairs (config id, time over the heuristic's), sorted, the layer's own winner among
    them; None where the config failed there. `heuristic` is the id of the heuristic's config.
    """

    m: int
    heuristic: str
    ratios: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class TableEntry:
    """All that one machine proved about one layer.

    `problem` has m = 0, `intervals` are sorted and disjoint. `trials`, sorted by m, are the
    evidence by which other layers may take its configs, and it theirs; see transfer.py.
    """

    identity: Identity
    problem: Problem
    intervals: tuple[Interval, ...]
    trials: tuple[Trials, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where a record comes from: the host that promoted it ("" where none was written), and when,
    as ISO 8601 in UTC."""

    host: str
    promoted_at: str


@dataclass(frozen=True)
class TunedTable:
    """One immutable generation of tuned entries.

    `id` is the hash of its entries, `path` the file it was read from, `origins` says where records
    come from, as far as it is known.
    """

    id: str
    entries: tuple[TableEntry, ...]
    path: Path | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False, repr=False)


def serve_intervals(
    anchors: Iterable[tuple[int, Payload]],
) -> list[tuple[int, int, int, Payload]]:
    """`(m_low, m_high, m, payload)` of each anchor `(m, payload)`: what it may serve.

    The intervals are sorted, disjoint and half-open, and each m is inside its own. Neighbours
    meet at their geometric mean (which belongs to the larger one), and no anchor reaches
    further than REACH times away from itself; the anchor m = 1 serves m = 0 too. Raises
    TableError on an m outside [1, 2**31) or given twice.
    """
    ordered = sorted(anchors, key=lambda anchor: anchor[0])
    ms = [m for m, _ in ordered]
    for left, right in zip([0, *ms], ms, strict=False):
        if not 0 < right < M_END or left == right:
            raise TableError(
                f"anchors must be different m with `1 <= m < 2**31`, but got m={right}"
                f"{' twice' if left == right else ''}; keep one winner for each m"
            )
    meets = [isqrt(left * right - 1) + 1 for left, right in itertools.pairwise(ms)]
    ends = [*meets, M_END][: len(ms)]
    return [
        (max(low, reach(m)[0]), min(high, reach(m)[1]), m, payload)
        for low, high, (m, payload) in zip([0, *meets], ends, ordered, strict=False)
    ]


def reach(m: int) -> tuple[int, int]:
    """The half-open interval that an anchor at `m` may serve at all."""
    return (0 if m == 1 else -(-m // REACH)), min(REACH * m + 1, M_END)


def check_entry(entry: TableEntry) -> None:
    """Raises TableError unless `entry` has m = 0, sorted, disjoint, well-formed intervals, and one
    set of trials for an m."""
    if entry.problem.m != 0:
        raise TableError(f"a table entry's problem must have m=0, but got m={entry.problem.m}")
    end = 0
    for interval in entry.intervals:
        low, m, high = interval.m_low, interval.m, interval.m_high
        if not (end <= low <= m < high <= M_END and m >= 1):
            raise TableError(
                "intervals must be sorted and disjoint with `m_low <= m < m_high`, "
                f"but got [{low}, {high}) with m={m} after m={end}"
            )
        end = high
    ms = [trials.m for trials in entry.trials]
    if ms != sorted(set(ms)) or not all(0 < m < M_END for m in ms):
        raise TableError(f"trials must be sorted by m with `1 <= m < 2**31`, but got m={ms[:8]}")
    for trials in entry.trials:
        ids = [id for id, _ in trials.ratios]
        if ids != sorted(set(ids)):
            raise TableError(f"trials at m={trials.m} must name each config once, in order")
