"""Winners as entries of a tuned table. Writing and finding tables is humming/dispatch; no SQL
here."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from humming.dispatch.decode import MAX_US
from humming.dispatch.tables import Interval, TableEntry, Trials, serve_intervals
from humming.spec.problem import M_END, Problem
from tuner.store.records import Winner


def entries(winners: list[Winner]) -> list[TableEntry]:
    """One entry for each identity and layer, its winners spread over the intervals of m that they
    serve.
    """
    groups: dict[tuple[str, Problem], list[Winner]] = defaultdict(list)
    for winner in winners:
        groups[winner.identity.id, winner.problem.at(0)].append(winner)
    return [_entry(groups[key]) for key in sorted(groups, key=lambda key: (key[0], key[1].id))]


def _entry(group: list[Winner]) -> TableEntry:
    return TableEntry(
        identity=group[0].identity,
        problem=group[0].problem.at(0),
        intervals=tuple(
            Interval(
                m_low=low,
                m_high=high,
                m=winner.problem.m,
                config=winner.config,
                us=winner.us,
                heuristic_us=winner.heuristic_us,
                record=winner.id,
            )
            for low, high, winner in _shares(group)
        ),
        trials=tuple(
            trials
            for winner in sorted(group, key=lambda winner: winner.problem.m)
            if winner.problem.m > 0 and (trials := trials_of(winner)) is not None
        ),
    )


def trials_of(winner: Winner) -> Trials | None:
    """What neighbours' configs took at the winner's problem, as its evidence has it; None where
    they were not tried, or what stands there is nothing of ours."""
    found = winner.evidence.get("neighbours")
    if not isinstance(found, dict):
        return None
    default, ratios = found.get("heuristic"), found.get("ratios")
    if not isinstance(default, str) or not isinstance(ratios, dict):
        return None
    if not all(isinstance(id, str) and _ratio(ratio) for id, ratio in ratios.items()):
        return None
    pairs = ((id, None if ratio is None else float(ratio)) for id, ratio in ratios.items())
    return Trials(winner.problem.m, default, tuple(sorted(pairs)))


def _ratio(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 < value < MAX_US)


def _shares(group: list[Winner]) -> list[tuple[int, int, Winner]]:
    """What each winner serves, disjoint: as they were measured between their anchors, together;
    else neighbours meet in the middle."""
    anchors = [(winner.problem.m, winner) for winner in group if winner.problem.m > 0]
    bridges = {winner.evidence.get("bridge") for _, winner in anchors}
    if len(bridges) > 1 or None in bridges:
        return [
            (max(low, _serves(winner)[0]), min(high, _serves(winner)[1]), winner)
            for low, high, _, winner in serve_intervals(anchors)
        ]
    shares: list[tuple[int, int, Winner]] = []
    end = 0
    for m, winner in sorted(anchors, key=lambda anchor: anchor[0]):
        low, high = _serves(winner)
        low = max(low, end)
        if low <= m < high:  # else two processes measured at once
            shares.append((low, high, winner))
            end = high
    return shares


def _serves(winner: Winner) -> tuple[int, int]:
    """The half-open interval of m over which the winner was proven; all m where nothing says."""
    low, high = winner.evidence.get("serves", (0, M_END))
    return int(low), int(high)
