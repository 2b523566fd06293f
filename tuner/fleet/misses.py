"""`--from-misses`: what serving processes asked for most and a heuristic config served, as problems
to tune, the most worth first. What was counted is tuner/store/ledger.py."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.intervals import TunedTable, serve_intervals
from humming.errors import LegalityError, TableError
from humming.ledger import folder
from humming.spec.identity import Identity
from humming.spec.naming import counted
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.planning.tasks import MOST_CHECKED_M, Task
from tuner.searching.candidates import legal_candidates
from tuner.store.entries import entries
from tuner.store.ledger import Traffic, absorb, traffic
from tuner.store.records import Winner
from tuner.store.store import Store
from tuner.workload import LayerGroup, Workload

USUAL_GAIN, LEAST_GAIN = 0.1, 0.02
"""Share of a heuristic config's time that tuning saves: where nothing alike was tuned, and where
nothing was gained with what was."""
APART = 2.0
"""Two numbers of tokens of a layer that are less than this factor apart are tuned as one."""
MOST = 64
"""Problems of one run."""


@dataclass(frozen=True)
class Missed:
    """A problem to tune. `misses` counts the calls, at numbers of tokens around its m, that its
    winner would serve; `saved_us` is what they all might save."""

    problem: Problem
    misses: int
    saved_us: float


def missed_tasks(store: Store, identity: Identity) -> tuple[list[Task], Workload]:
    """A task for each problem that is worth it, the most worth first, and the workload that they
    are; takes in first what this machine's processes left."""
    absorb(store.connections.server, folder())
    asked = traffic(store.connections.server, identity.device)
    found = rank(asked, identity, store.winners(identity))
    tasks = _tasks(found, identity)
    groups = tuple(dict.fromkeys(task.group for task in tasks))
    return tasks, Workload("what was missed", 1, _dtype(found), groups, (), ())


def rank(asked: list[Traffic], identity: Identity, winners: list[Winner]) -> list[Missed]:
    """What `identity` should tune: traffic that a heuristic config would serve now, by traffic x
    expected gain."""
    table = TunedTable("", tuple(entries(winners)))
    layers: dict[Problem, list[Traffic]] = defaultdict(list)
    for one in asked:
        if one.misses and one.problem.m:
            layers[one.problem.at(0)].append(one)
    found: list[Missed] = []
    for layer, missed in layers.items():
        try:
            dispatches = resolve(layer, identity, table)
        except (LegalityError, TableError):
            continue  # of another device's layout, or that nothing runs here any more
        still = [t for t in missed if lookup(dispatches, t.problem.m).untuned]
        found += _anchors(still, winners)
    return sorted(found, key=lambda one: (-one.saved_us, one.problem.id))[:MOST]


def _anchors(missed: list[Traffic], winners: list[Winner]) -> list[Missed]:
    """Numbers of tokens to tune one layer for: the heaviest, then the heaviest of those apart from
    it, and so on."""
    weighed = [(one, one.misses * saved_us(one.problem, winners)) for one in missed]
    left = sorted(weighed, key=lambda item: (-item[1], item[0].problem.m))
    found: list[Missed] = []
    while left:
        anchor = left[0][0].problem
        near = [item for item in left if _apart(item[0].problem.m, anchor.m) < APART]
        left = [item for item in left if item not in near]
        misses = sum(one.misses for one, _ in near)
        found.append(Missed(anchor, misses, sum(weight for _, weight in near)))
    return found


def saved_us(problem: Problem, winners: list[Winner]) -> float:
    """Microseconds that tuning might save in a call: the share that it saved for what was tuned
    nearest, of a time that grows as bytes do."""
    near = min(winners, key=lambda winner: _distance(winner.problem, problem), default=None)
    if near is None:
        return USUAL_GAIN * problem.least_bytes / 1e4
    share = max(LEAST_GAIN, 1.0 - near.us / near.heuristic_us)
    return share * near.heuristic_us * problem.least_bytes / near.problem.least_bytes


def _distance(one: Problem, other: Problem) -> tuple[bool, bool, float]:
    size = abs(math.log(one.n * one.k / (other.n * other.k)))
    return one.op != other.op, one.format != other.format, size + abs(math.log(one.m / other.m))


def _apart(one: int, other: int) -> float:
    return max(one, other) / min(one, other)


def _tasks(found: list[Missed], identity: Identity) -> list[Task]:
    anchors: dict[Problem, list[int]] = defaultdict(list)
    for one in found:
        anchors[one.problem.at(0)].append(one.problem.m)
    spans = {
        layer.at(m): (low, min(high, max(m, MOST_CHECKED_M) + 1))
        for layer, values in anchors.items()
        for low, high, m, _ in serve_intervals((m, None) for m in values)
    }
    spaces, tasks = load_spaces(), []
    for one in found:
        try:
            candidates = legal_candidates(one.problem, identity.device, spaces)
        except LegalityError:
            continue
        tasks.append(Task(_group(one), one.problem, candidates, *spans[one.problem]))
    return tasks


def _group(one: Missed) -> LayerGroup:
    problem = one.problem
    return LayerGroup(
        op=problem.op,
        n=problem.n,
        k=problem.k,
        count=one.misses,
        experts=problem.experts,
        top_k=problem.top_k,
        format=problem.format,
        layers=(f"missed {counted(one.misses, 'time')}",),
        act_order=problem.act_order,
    )


def _dtype(found: list[Missed]) -> str:
    return found[0].problem.activation_dtype if found else "bf16"
