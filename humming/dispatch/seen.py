"""A table as a machine sees it whose kernel sources are not those of the table: an interval holds
as long as its own kernel's sources are the same. Which entries serve is dispatcher.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.spec.identity import Identity, seen_from
from humming.spec.legality import families_for
from humming.spec.sources import count_same, units_of


def as_seen(table: TunedTable, here: Identity) -> TunedTable:
    """`table` as `here` sees it: of an entry, what holds has here's `source_hash`; what does not
    is an entry of its own, as it was. Entries of here's very sources come first, then those that
    share the most with them."""
    if all(entry.identity.source_hash == here.source_hash for entry in table.entries):
        return table
    ordered = sorted(
        table.entries,
        key=lambda entry: -count_same(entry.identity.source_hash, here.source_hash),
    )
    return replace(table, entries=tuple(part for entry in ordered for part in _parts(entry, here)))


def _parts(entry: TableEntry, here: Identity) -> Iterator[TableEntry]:
    if not entry.intervals:
        yield entry
    parts: dict[Identity, list[Interval]] = {}
    for interval in entry.intervals:
        parts.setdefault(_seen(entry, here, interval.config.family), []).append(interval)
    for identity, intervals in parts.items():
        trials = entry.trials if _all_hold(entry, here) else ()
        yield replace(entry, identity=identity, intervals=tuple(intervals), trials=trials)


def _seen(entry: TableEntry, here: Identity, family: str) -> Identity:
    return seen_from(entry.identity, here, units_of(family, entry.problem))


def _all_hold(entry: TableEntry, here: Identity) -> bool:
    """Whether what was tried holds: the kernels of all that can serve the problem."""
    return all(
        _seen(entry, here, family).source_hash == here.source_hash
        for family in families_for(entry.problem, here.device)
    )
