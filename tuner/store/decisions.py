"""Statements about what follows from evidence: settled problems and winners. Each runs in the
caller's transaction; leases are leases.py.

Rows of `settled` and `winners` are only ever added; the latest one of an identity and problem
counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select, true

from humming.spec.canonical import content_hash
from humming.spec.config import KernelConfig, config_id
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import process, rows
from tuner.store.connections import now
from tuner.store.records import Settled, Winner
from tuner.store.schema import (
    REOPENED,
    configs,
    identities,
    problems,
    settled,
    winners,
)
from tuner.store.sources import Alike


def settle(
    connection: Connection, identity: Identity, problem: Problem, reason: str, measured: int
) -> dict[str, Any]:
    """Adds a row of `settled`, later than all others of its problem, and gives it back."""
    _add_keys(connection, identity, problem)
    values: dict[str, Any] = {
        "identity_id": identity.id,
        "problem_id": problem.id,
        "reason": reason,
        "measured": measured,
        "settled_at": _later(connection, settled, "settled_at", identity, problem),
    }
    values["id"] = row_id(values)
    rows.add(connection, settled, values)
    return values


def settled_of(values: Mapping[str, Any]) -> Settled:
    """The one place where a Settled is made."""
    return Settled(**values)


def read_settled(
    connection: Connection, identity: Identity, since: datetime | None = None
) -> dict[str, Settled]:
    """problem_id -> its latest row, unless that one reopened it, or is not later than `since`. Rows
    of like machines count where all that can serve the problem had the same kernel sources."""
    alike = Alike(connection, identity)
    unlike = _settled_before(connection, alike)
    query = (
        select(settled)
        .where(settled.c.identity_id.in_(alike.ids))
        .order_by(settled.c.settled_at, settled.c.id)
    )
    latest = {
        row.problem_id: row._mapping
        for row in connection.execute(query)
        if (row.identity_id, row.problem_id) not in unlike
    }
    return {
        problem: settled_of({str(name): value for name, value in row.items()})
        for problem, row in latest.items()
        if row["reason"] != REOPENED and (since is None or row["settled_at"] > since)
    }


def _settled_before(connection: Connection, alike: Alike) -> set[tuple[str, str]]:
    """(identity_id, problem_id) of what was settled with other sources of a kernel that can serve
    it."""
    if not alike.others:
        return set()
    query = (
        select(settled.c.identity_id, *rows.labelled(problems))
        .select_from(settled.join(problems))
        .where(settled.c.identity_id.in_(alike.others))
        .distinct()
    )
    found: set[tuple[str, str]] = set()
    for row in connection.execute(query):
        problem = rows.problem_of(rows.part(row, problems))
        if problem is None or not alike.hold_for_all(row.identity_id, problem):
            found.add((row.identity_id, row.problems__id))
    return found


def reopen(connection: Connection, identity: Identity, problem: Problem) -> None:
    """Takes back what `settle` said; nothing where it said nothing."""
    if problem.id in read_settled(connection, identity):
        settle(connection, identity, problem, REOPENED, 0)


def promote(
    connection: Connection,
    identity: Identity,
    problem: Problem,
    config: KernelConfig,
    figures: Mapping[str, Any],
) -> Winner:
    """Adds a row of `winners`, later than all others of its problem: it serves from now on."""
    _add_keys(connection, identity, problem)
    rows.add(connection, configs, rows.config_values(config))
    values: dict[str, Any] = {
        "identity_id": identity.id,
        "problem_id": problem.id,
        "config_id": config_id(config),
        **figures,
        "evidence": {**figures["evidence"], "host": process.host()},
        "promoted_at": _later(connection, winners, "promoted_at", identity, problem),
    }
    values["id"] = row_id(values)
    rows.add(connection, winners, values)
    return winner_of(values, identity, problem, config)


def winner_of(
    values: Mapping[str, Any], identity: Identity, problem: Problem, config: KernelConfig
) -> Winner:
    """The one place where a Winner is made. Its identity is without the device's uuid, as a
    promotion is for every card of one model.
    """
    if identity.device.uuid is not None:
        identity = replace(identity, device=replace(identity.device, uuid=None))
    keys = ("identity_id", "problem_id", "config_id")
    fields = {name: value for name, value in values.items() if name not in keys}
    return Winner(**fields, identity=identity, problem=problem, config=config)


def read_winners(
    connection: Connection, identity: Identity | None, until: datetime | None = None
) -> list[Winner]:
    """The serving winner of each identity and problem, in order of promotion; those that served at
    `until` where it is given. What this version cannot read is left out.

    Of one identity, a problem's winner may be that of a like machine where its kernel had the same
    sources; it is given as this identity's. What many winners share (identities, problems, configs)
    is read and made once.
    """
    alike = None if identity is None else Alike(connection, identity)
    ours = true() if alike is None else winners.c.identity_id.in_(alike.ids)
    query = select(winners).where(ours).order_by(winners.c.promoted_at, winners.c.id)
    if until is not None:
        query = query.where(winners.c.promoted_at <= until)
    latest: dict[tuple[str, str], Row[Any]] = {}
    for row in connection.execute(query):
        key = (row.identity_id, row.problem_id)
        latest.pop(key, None)
        latest[key] = row
    machines = rows.identities_of(
        connection, identities.c.id.in_(select(winners.c.identity_id).where(ours))
    )
    used = select(winners.c.problem_id).where(ours)
    layers = rows.made(connection, problems, problems.c.id.in_(used), rows.problem_of)
    used = select(winners.c.config_id).where(ours)
    kernels = rows.made(connection, configs, configs.c.id.in_(used), rows.config_of)
    found: list[Winner] = []
    for row in latest.values():
        problem, config = layers.get(row.problem_id), kernels.get(row.config_id)
        machine = machines.get(row.identity_id)  # all three None where it was just pruned
        if problem is None or config is None or machine is None:
            continue
        if alike is None or alike.hold(row.identity_id, problem, config.family):
            found.append(winner_of(row._asdict(), machine, problem, config))
    return found if identity is None else _of_one(found, identity)


def _of_one(found: list[Winner], identity: Identity) -> list[Winner]:
    """One winner a problem, in order of promotion: this identity's own where it has one, else the
    latest."""
    best: dict[str, Winner] = {}
    for winner in found:
        known = best.get(winner.problem.id)
        if winner.identity.id == identity.id or known is None or known.identity.id != identity.id:
            best.pop(winner.problem.id, None)
            best[winner.problem.id] = winner
    return [
        replace(one, identity=replace(one.identity, source_hash=identity.source_hash))
        for one in best.values()
    ]


def find(connection: Connection, prefix: str) -> list[tuple[Winner, Identity]]:
    """Serving winners whose id begins with `prefix`."""
    return [(w, w.identity) for w in read_winners(connection, None) if w.id.startswith(prefix)]


def _add_keys(connection: Connection, identity: Identity, problem: Problem) -> None:
    rows.add_identity(connection, identity)
    rows.add(connection, problems, rows.problem_values(problem))


def row_id(values: Mapping[str, Any]) -> str:
    """The id of a row of `settled` or `winners`: the hash of all its other values."""
    content = {n: v for n, v in values.items() if n != "id"}
    return content_hash(
        {n: v.isoformat() if isinstance(v, datetime) else v for n, v in content.items()}
    )


def _later(
    connection: Connection, table: Table, column: str, identity: Identity, problem: Problem
) -> datetime:
    """Now, or just after the latest row of this problem: a clock that was set back never hides a
    newer decision.
    """
    latest = connection.execute(
        select(func.max(table.c[column])).where(
            table.c.identity_id == identity.id, table.c.problem_id == problem.id
        )
    ).scalar_one()
    time = now(connection)
    return time if latest is None else max(time, latest + timedelta(microseconds=1))
