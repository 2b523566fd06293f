"""Statements of a journal: what is kept at hand in it, and what is left to do once its rows were
merged. When that happens is failover.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Table, delete, select, true
from sqlalchemy.dialects import sqlite

from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import rows
from tuner.store.connections import Connections
from tuner.store.schema import (
    configs,
    devices,
    identities,
    in_flight,
    measurements,
    problems,
    settled,
    winners,
)
from tuner.store.sources import Alike

Found: TypeAlias = list[tuple[Table, list[rows.Values]]]


def known_of(connection: Connection, identity: Identity, problem: Problem) -> Found:
    """What tuning `problem` asks for: its trials, those that crashed, and what is settled and
    serves on `identity`, each table after what it refers to."""
    alike = Alike(connection, identity).ids
    ours = measurements.c.problem_id == problem.id
    of: list[tuple[Table, ColumnElement[bool]]] = [
        (winners, true()),
        (settled, true()),
        (measurements, ours | (measurements.c.outcome == "crashed")),
    ]
    evidence = [
        (table, _rows(connection, table, table.c.identity_id.in_(alike) & which))
        for table, which in of
    ]
    named = [
        (table, {row.get(column) for _, found in evidence for row in found} - {None})
        for table, column in ((problems, "problem_id"), (configs, "config_id"))
    ]
    shared = [(table, _by_id(connection, table, ids)) for table, ids in named]
    machines = [rows.identity_values(identity), *_by_id(connection, identities, set(alike))]
    device = rows.device_values(identity.device)
    return [(devices, [device]), (identities, machines), *shared, *evidence]


def _rows(connection: Connection, table: Table, which: ColumnElement[bool]) -> list[rows.Values]:
    return [dict(row._mapping) for row in connection.execute(select(table).where(which))]


def _by_id(connection: Connection, table: Table, ids: set[Any]) -> list[rows.Values]:
    return [
        row
        for part in _parts(sorted(ids))
        for row in _rows(connection, table, table.c.id.in_(part))
    ]


def insert(connection: Connection, found: Found) -> None:
    """Adds rows to the journal that it lacks."""
    for table, values in found:
        if values:
            new = sqlite.insert(table).on_conflict_do_nothing(index_elements=[table.c.id])
            connection.execute(new, values)


def drop_known(connection: Connection, server: Connections) -> None:
    """Takes out of the journal the trials that the server has: kept at hand, or written in the
    moment in which it left."""
    trials = list(connection.execute(select(measurements.c.id)).scalars())
    known = server.read(lambda c: _by_id(c, measurements, set(trials)))
    forget(connection, measurements, [row["id"] for row in known])


def settle_launches(connection: Connection, trials: list[str], lost: list[rows.Values]) -> None:
    """On the server: the launches of `trials` came back; those of `lost` did not."""
    forget(connection, in_flight, trials)
    for row in lost:
        if row["id"] not in trials:
            rows.add(connection, in_flight, row)


def forget(connection: Connection, table: Table, ids: Sequence[str]) -> None:
    """Deletes the rows of those ids."""
    for part in _parts(ids):
        connection.execute(delete(table).where(table.c.id.in_(part)))


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + 500] for start in range(0, len(ids), 500))
