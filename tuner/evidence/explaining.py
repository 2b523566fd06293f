"""The command explain: for each problem of a model which record serves here, where it comes from,
and in which fields that machine differs from this one. It asks as the runtime does; nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from humming.dispatch.dispatcher import Dispatch, lookup, resolve
from humming.dispatch.intervals import Interval, Origin, TableEntry, TunedTable
from humming.dispatch.seen import as_seen
from humming.dispatch.shipped import shipped_table
from humming.dispatch.sources import load_table
from humming.errors import LegalityError
from humming.jit.identity import here
from humming.spec.config import config_to_dict
from humming.spec.device import Device
from humming.spec.identity import RULES, TIERS, Identity, Tier, differences, tier
from humming.spec.problem import Problem
from tuner.evidence.best import transfer_json
from tuner.planning.tasks import problem_of
from tuner.workload import LayerGroup, read_workload


@dataclass(frozen=True)
class Known:
    """A record of one layer, as a table has it, and how it fits here."""

    interval: Interval
    identity: Identity
    origin: Origin | None
    tier: Tier
    shipped: bool = False


@dataclass(frozen=True)
class Explained:
    """What serves `problem`, and by which record. `others` are records of this layer that do not
    serve it here, the best fitting first. `refused` says why nothing can serve it at all."""

    group: LayerGroup
    problem: Problem
    dispatch: Dispatch | None
    record: Known | None
    others: tuple[Known, ...]
    refused: str = ""


@dataclass(frozen=True)
class Explanation:
    """All problems of a model on this machine, and the table that serves them."""

    model: str
    here: Identity
    table: TunedTable | None
    problems: tuple[Explained, ...]


def explain(
    model: Path,
    device: Device,
    tp: int,
    m_values: tuple[int, ...],
    format: str | None,
    db: str | None,
    unfused: bool = False,
) -> Explanation:
    """Which record serves each problem of `model` on `device`, by the table that would serve."""
    workload = read_workload(model, tp, format, unfused)
    identity, table, shipped = here(device), load_table(db), shipped_table(device)
    rows = [
        _explained(group, problem_of(group, workload, device).at(m), identity, table, shipped)
        for group in workload.problems
        for m in m_values
    ]
    return Explanation(workload.model, identity, table, tuple(rows))


def _explained(
    group: LayerGroup,
    problem: Problem,
    identity: Identity,
    table: TunedTable | None,
    shipped: TunedTable | None,
) -> Explained:
    try:
        dispatch = lookup(resolve(problem, identity, table, shipped=shipped), problem.m)
        record, refused = dispatch.record, ""
    except LegalityError as error:
        dispatch, record, refused = None, None, str(error)
    known = [
        *_records(problem, identity, table, record, False),
        *_records(problem, identity, shipped, record, True),
    ]
    serving = next((one for one in known if one.interval.record == record), None)
    others = sorted(
        (one for one in known if one is not serving),
        key=lambda one: (TIERS.index(one.tier), abs(one.interval.m - problem.m)),
    )
    return Explained(group, problem, dispatch, serving, tuple(others), refused)


def _records(
    problem: Problem,
    identity: Identity,
    table: TunedTable | None,
    serving: str | None,
    shipped: bool,
) -> Iterator[Known]:
    """The records of a table for this layer, whatever machine they are of, and the one that serves
    it, which may be a neighbour's."""
    for entry in as_seen(table, identity).entries if table else ():
        same, fit = _same_layer(entry, problem), tier(entry.identity, identity)
        for interval in entry.intervals:
            if same or interval.record == serving:
                origin = table.origins.get(interval.record) if table else None
                yield Known(interval, entry.identity, origin, fit, shipped)


def _same_layer(entry: TableEntry, problem: Problem) -> bool:
    """Whether an entry is of this layer, at whatever m, packed for whatever device, with or without
    a bias."""
    theirs = replace(entry.problem, m=problem.m, bias=problem.bias, layout=problem.layout)
    return theirs == problem


def to_json(found: Explanation) -> dict[str, Any]:
    """`explain --json`. `differs` maps a field to the record's value, this machine's, and the best
    tier that its rule leaves."""
    return {
        "model": found.model,
        "device": found.here.device.name,
        "table": None if found.table is None else found.table.id,
        "problems": [_row(row, found.here) for row in found.problems],
    }


def _row(row: Explained, ours: Identity) -> dict[str, Any]:
    dispatch, problem = row.dispatch, row.problem
    return {
        "layers": list(row.group.layers),
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "source": None if dispatch is None else dispatch.source,
        "tier": None if dispatch is None else dispatch.tier,
        "verify_first": dispatch is not None and dispatch.tier == "stale",
        "config": None if dispatch is None else config_to_dict(dispatch.config),
        "serves": None if dispatch is None else [dispatch.m_low, dispatch.m_high],
        "transfer": None if dispatch is None else transfer_json(dispatch.transfer),
        "record": None if row.record is None else _known(row.record, ours),
        "others": [_known(one, ours) for one in row.others],
        "refused": row.refused or None,
    }


def _known(one: Known, ours: Identity) -> dict[str, Any]:
    return {
        "record": one.interval.record,
        "tier": one.tier,
        "shipped": one.shipped,
        "host": None if one.origin is None else one.origin.host or None,
        "promoted_at": None if one.origin is None else one.origin.promoted_at,
        "device": one.identity.device.name,
        "measured_at_m": one.interval.m,
        "us": one.interval.us,
        "heuristic_us": one.interval.heuristic_us,
        "differs": {
            name: {"record": theirs, "here": mine, "rule": RULES[name]}
            for name, (theirs, mine) in sorted(differences(one.identity, ours).items())
        },
    }


def print_explanation(found: Explanation, console: Console) -> None:
    """For a person: a paragraph a problem."""
    table = "no tuned table" if found.table is None else f"table {found.table.id[:8]}"
    console.print(f"{found.model} on {found.here.device.name}, {table}")
    for row in found.problems:
        problem = row.problem
        shape = f"n={problem.n} k={problem.k} m={problem.m} {problem.format}"
        console.print(f"\n{', '.join(row.group.layers)}  {shape}")
        if row.dispatch is None:
            console.print(f"  not served: {row.refused}")
            continue
        console.print(f"  served by {row.dispatch.config} ({_why(row)})")
        if row.record is not None:
            _print_known("from", row.record, found.here, console)
        for other in row.others if row.record is None else ():
            _print_known("passed over:", other, found.here, console)


def _why(row: Explained) -> str:
    assert row.dispatch is not None
    source, fit = row.dispatch.source, row.dispatch.tier
    if fit is None:
        return "heuristic: no record serves it here"
    first = ", first in line for humming-tune verify" if fit == "stale" else ""
    return f"{row.dispatch.transfer or source}, {fit}{first}"


def _print_known(word: str, one: Known, ours: Identity, console: Console) -> None:
    origin = one.origin
    host = f"host {origin.host or 'unknown'}" if origin else "an unknown host"
    when = f", {origin.promoted_at[:19]} UTC" if origin else ""
    place = f"{'the shipped table, ' if one.shipped else ''}{host}{when}"
    what = f"{one.interval.us:.1f} µs, heuristic {one.interval.heuristic_us:.1f}"
    span = f"m {one.interval.m_low} to {one.interval.m_high - 1}"
    console.print(
        f"  {word} record {one.interval.record[:12]} of {place}: {what} at m={one.interval.m}, "
        f"proven for {span}, {one.tier} here"
    )
    for name, (theirs, mine) in sorted(differences(one.identity, ours).items()):
        console.print(f"    {name}: {theirs} there, {mine} here ({RULES[name]})")
