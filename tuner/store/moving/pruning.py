"""What a database may forget: old trials and decisions that nothing serving rests on, traffic that
nothing reads any more, leases that ran out. Never what serves, what a name names, or what crashed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    exists,
    false,
    func,
    or_,
    select,
)

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


def prune(
    store: Store, before: datetime, *, dry_run: bool = False, pinned: str | None = None
) -> Pruned:
    """Forgets what is older than `before` and of no use, in one transaction; with `dry_run` only
    says what would go, by reading alone. The generation `pinned` stays. Raises StoreError."""
    run = store.connections.read if dry_run else store.connections.write
    return run(lambda connection: _prune(connection, before, pinned, dry_run))


def _prune(connection: Connection, before: datetime, pinned: str | None, dry_run: bool) -> Pruned:
    """Deletes trials that ended before `before` unless they are of a config that serves or crashed;
    promotions and settlements that later ones replaced; generations that no name names; counts of
    calls that are too old to be read; leases that ran out; and what then nothing refers to. A dry
    run counts these rows, and takes them for gone."""
    rows: Counter[str] = Counter()
    going: dict[Table, ColumnElement[bool]] = {}

    def forget(table: Table, where: ColumnElement[bool]) -> None:
        if dry_run:
            going[table] = where
            query = select(func.count()).select_from(table).where(where)
            rows[table.name] = connection.execute(query).scalar_one()
        else:
            rows[table.name] = int(connection.execute(delete(table).where(where)).rowcount)

    forget(measurements, _old_trials(before))
    forget(winners, _replaced(winners, "promoted_at", before))
    forget(settled, _replaced(settled, "settled_at", before))
    time = now(connection)
    unread, over = min(before, time - RECENT), min(before, time)
    forget(ledger, ledger.c.until < unread)
    forget(leases, leases.c.expires_at < over)
    gone = [id for id in _old_generations(connection, before) if id != pinned]
    renamed = _replaced(generation_names, "named_at", before, ("name",))
    forget(generation_names, and_(renamed, generation_names.c.generation_id.in_(gone)))
    names = exists().where(
        generation_names.c.generation_id == generations.c.id,
        ~going.get(generation_names, false()),
    )
    forget(generations, generations.c.id.in_(gone) & ~names)
    for table in (configs, problems, identities, devices):
        forget(table, ~or_(*_references(table, going)))
    return Pruned(rows, tuple(gone))


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


def _references(table: Table, going: dict[Table, ColumnElement[bool]]) -> list[ColumnElement[bool]]:
    """Whether any row of any table, but for those that are going, refers to a row of `table`."""
    keys = [key for other in metadata.tables.values() for key in other.foreign_keys]
    return [
        exists().where(key.parent == table.c.id, ~going.get(key.parent.table, false()))
        for key in keys
        if key.column.table is table
    ]
