"""What a database may forget: old trials and decisions that nothing serving rests on, traffic that
nothing reads any more, leases that ran out. Never what serves, what a name names, or what crashed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, or_, select

from tuner.store.connections import now
from tuner.store.ledger import RECENT
from tuner.store.schema import (
    configs,
    devices,
    generation_names,
    generations,
    identities,
    leases,
    ledger,
    measurements,
    metadata,
    problems,
    settled,
    winners,
)
from tuner.store.store import Store


@dataclass(frozen=True)
class Pruned:
    """How many rows of each table went (or would go), and the ids of the generations among them."""

    rows: Counter[str]
    generations: tuple[str, ...]


class _Undone(Exception):
    """Ends the transaction of a dry run."""


def prune(
    store: Store, before: datetime, *, dry_run: bool = False, pinned: str | None = None
) -> Pruned:
    """Forgets what is older than `before` and of no use, in one transaction; with `dry_run` only
    says what would go. The generation `pinned` stays. Raises StoreError."""
    found: list[Pruned] = []

    def work(connection: Connection) -> None:
        found[:] = [_prune(connection, before, pinned)]
        if dry_run:
            raise _Undone

    with suppress(_Undone):
        store.connections.write(work)
    return found[0]


def _prune(connection: Connection, before: datetime, pinned: str | None) -> Pruned:
    """Deletes trials that ended before `before` unless they are of a config that serves or crashed;
    promotions and settlements that later ones replaced; generations that no name names; counts of
    calls that are too old to be read; leases that ran out; and what then nothing refers to."""
    rows: Counter[str] = Counter()
    rows["measurements"] = _delete(connection, measurements, _old_trials(before))
    rows["winners"] = _delete(connection, winners, _replaced(winners, "promoted_at", before))
    rows["settled"] = _delete(connection, settled, _replaced(settled, "settled_at", before))
    time = now(connection)
    unread, over = min(before, time - RECENT), min(before, time)
    rows["ledger"] = _delete(connection, ledger, ledger.c.until < unread)
    rows["leases"] = _delete(connection, leases, leases.c.expires_at < over)
    gone = [id for id in _old_generations(connection, before) if id != pinned]
    rows["generation_names"] = _delete(
        connection,
        generation_names,
        and_(
            _replaced(generation_names, "named_at", before, ("name",)),
            generation_names.c.generation_id.in_(gone),
        ),
    )
    named = exists().where(generation_names.c.generation_id == generations.c.id)
    rows["generations"] = _delete(connection, generations, generations.c.id.in_(gone) & ~named)
    for table in (configs, problems, identities, devices):
        rows[table.name] = _delete(connection, table, ~or_(*_references(table)))
    return Pruned(rows, tuple(gone))


def _delete(connection: Connection, table: Table, where: ColumnElement[bool]) -> int:
    return int(connection.execute(delete(table).where(where)).rowcount)


def _old_trials(before: datetime) -> ColumnElement[bool]:
    serves = exists().where(
        winners.c.identity_id == measurements.c.identity_id,
        winners.c.problem_id == measurements.c.problem_id,
        winners.c.config_id == measurements.c.config_id,
        ~_replaced(winners, "promoted_at", None),
    )
    old = measurements.c.finished_at < before
    return and_(old, measurements.c.outcome != "crashed", ~serves)


def _replaced(
    table: Table,
    time: str,
    before: datetime | None,
    keys: tuple[str, ...] = ("identity_id", "problem_id"),
) -> ColumnElement[bool]:
    """Rows that a later row of the same keys replaced, and that are older than `before`."""
    later = table.alias("later")
    newer = or_(
        later.c[time] > table.c[time],
        and_(later.c[time] == table.c[time], later.c.id > table.c.id),
    )
    replaced = exists().where(*(later.c[key] == table.c[key] for key in keys), newer)
    return replaced if before is None else and_(replaced, table.c[time] < before)


def _old_generations(connection: Connection, before: datetime) -> list[str]:
    now_named = select(generation_names.c.generation_id).where(
        ~_replaced(generation_names, "named_at", None, ("name",))
    )
    recent = select(generation_names.c.generation_id).where(generation_names.c.named_at >= before)
    query = select(generations.c.id).where(
        generations.c.created_at < before,
        generations.c.id.not_in(now_named),
        generations.c.id.not_in(recent),
    )
    return list(connection.execute(query).scalars())


def _references(table: Table) -> list[ColumnElement[bool]]:
    """Whether any row of any table refers to a row of `table`."""
    keys = [key for other in metadata.tables.values() for key in other.foreign_keys]
    return [exists().where(key.parent == table.c.id) for key in keys if key.column.table is table]
