"""Winners as a tuned table, and the entry point `humming.tables` by which the runtime asks a
database for one. No SQL here.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from humming.dispatch.tables import Interval, TableEntry, serve_intervals, write_generation
from humming.settings import tables_dir
from humming.spec.canonical import content_hash
from tuner.store import migrate
from tuner.store.open import open_store
from tuner.store.records import Winner


def entries(winners: list[Winner]) -> list[TableEntry]:
    """One entry for each identity and layer, its winners spread over the intervals of m that they
    serve.
    """
    groups: dict[tuple[str, str], list[Winner]] = defaultdict(list)
    for winner in winners:
        groups[winner.identity.id, winner.problem.layer_id].append(winner)
    return [_entry(groups[key]) for key in sorted(groups)]


def _entry(group: list[Winner]) -> TableEntry:
    anchors = [(winner.problem.m, winner) for winner in group if winner.problem.m > 0]
    return TableEntry(
        identity=group[0].identity,
        problem=group[0].problem.at(0),
        intervals=tuple(
            Interval(
                m_low=low,
                m_high=high,
                m=m,
                config=winner.config,
                us=winner.us,
                heuristic_us=winner.heuristic_us,
                record=winner.id,
            )
            for low, high, m, winner in serve_intervals(anchors)
        ),
    )


def resolve(url: str) -> Path | None:
    """The tuned table of the database at `url`, written as a generation file; None where nothing
    is tuned yet. A role that can only read is enough. Raises StoreError.

    Each database has its own folder below `tables_dir(url)`, so that none takes another's
    `current`.
    """
    if migrate.revision(url) is None:
        return None
    with open_store(url, write=False) as store:
        found = store.table_entries()
        folder = tables_dir(url) / content_hash(store.shown)
    return write_generation(found, folder).path if found else None
