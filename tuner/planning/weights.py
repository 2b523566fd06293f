"""How a budget is shared between problems: by traffic times headroom. Knows no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tuner.planning.tasks import Task
from tuner.store.records import Winner

UNKNOWN_HEADROOM = 0.5
"""What a problem that was never tuned may save, as a part of its time."""

FLOOR = 0.5
"""No problem gets less than this part of an equal share: its finals need time, whatever it is."""


def weights(tasks: Sequence[Task], winners: Iterable[Winner]) -> dict[str, float]:
    """Problem id -> its weight, 1 on average.

    Traffic is the layers' number times the bytes that a call must move, over the square root of
    its tokens: calls with few tokens are the more frequent ones. Headroom is the part of the
    served time that lies above the memory limit.
    """
    served = {winner.problem.id: winner for winner in winners}
    raw = {task.problem.id: _traffic(task) * _headroom(served, task) for task in tasks}
    mean = sum(raw.values()) / max(1, len(raw))
    if mean <= 0.0:
        return dict.fromkeys(raw, 1.0)
    return {key: FLOOR + (1.0 - FLOOR) * value / mean for key, value in raw.items()}


def _traffic(task: Task) -> float:
    return task.group.count * task.problem.least_bytes / math.sqrt(max(1, task.problem.m))


def _headroom(served: dict[str, Winner], task: Task) -> float:
    winner = served.get(task.problem.id)
    if winner is None or winner.limit_us is None:
        return UNKNOWN_HEADROOM
    return max(0.0, 1.0 - winner.limit_us / winner.us)
