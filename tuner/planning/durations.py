"""How long problems took to settle, read off the evidence, and how long others will take by that.
Pure functions over rows; what plan prints is predicting.py."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from humming.spec.problem import Problem
from tuner.store.records import Measurement, Settled

NEIGHBOURS = 3
"""Known problems whose times are averaged, the nearest by size."""


def durations(
    evidence: Iterable[Measurement], settled: Mapping[str, Settled]
) -> dict[Problem, float]:
    """Problem -> seconds from the end of the problem before it, of the same process, to its own:
    compiling, making its tensors and finals are in it. The first one of a process counts from its
    first trial. One that was searched twice counts its second time, and the first one to whoever
    came after it: the sum is what all took. Trials after it was settled, of neighbours' configs, do
    not count."""
    rows: dict[str, list[Measurement]] = {}
    for row in evidence:
        rows.setdefault(row.problem_id, []).append(row)
    ends: dict[tuple[str, int], list[tuple[datetime, list[Measurement]]]] = {}
    for key, end_of in settled.items():
        mine = [row for row in rows.get(key, ()) if row.finished_at <= end_of.settled_at]
        if mine and end_of.measured:
            ends.setdefault((mine[-1].host, mine[-1].pid), []).append((end_of.settled_at, mine))
    found: dict[Problem, float] = {}
    for of_process in ends.values():
        before = min(_begun(mine) for _, mine in of_process)
        for end, mine in sorted(of_process, key=lambda item: item[0]):
            found[mine[0].problem] = max(0.0, (end - before).total_seconds())
            before = end
    return found


def _begun(rows: Sequence[Measurement]) -> datetime:
    """When the process that took the last of `rows` began the first of its own."""
    own = [row for row in rows if (row.host, row.pid) == (rows[-1].host, rows[-1].pid)]
    return min(row.started_at - timedelta(seconds=row.compile_s or 0.0) for row in own)


def predicted_s(problem: Problem, known: Mapping[Problem, float]) -> float | None:
    """Seconds that `problem` will take: what its nearest neighbours took; None where nothing is
    known."""
    near = sorted(known, key=lambda other: _apart(problem, other))[:NEIGHBOURS]
    return statistics.mean(known[other] for other in near) if near else None


def _apart(one: Problem, other: Problem) -> float:
    """Doublings of m, n and k between two problems; formats count for two."""
    sizes: Sequence[tuple[int, int]] = (
        (one.m + 1, other.m + 1),
        (one.n, other.n),
        (one.k, other.k),
    )
    apart = sum(abs(math.log2(a / b)) for a, b in sizes)
    return apart + 2.0 * (one.format != other.format)
