"""Statements about leases: who may tune which problem, by the database's clock. Each runs in the
caller's transaction.

What follows from evidence (settled problems, winners) is decisions.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import process, rows
from tuner.store.connections import now
from tuner.store.decisions import read_settled
from tuner.store.records import Lease
from tuner.store.schema import leases, problems


def lease(
    connection: Connection,
    identity: Identity,
    wanted: Sequence[Problem],
    seconds: float,
    holder: str,
    since: datetime | None,
) -> Lease | None:
    """Takes the first problem of `wanted` that is not settled and that no live holder has.

    Rows that another transaction is taking at this moment are skipped, not waited for. Whether a
    problem is settled is asked again once it is ours: who settles gives the lease back afterwards.
    """
    time = now(connection)
    settled = read_settled(connection, identity, since)
    held = {
        row.id: row
        for row in connection.execute(select(leases).where(leases.c.identity_id == identity.id))
    }
    rows.add_identity(connection, identity)
    for problem in wanted:
        row = held.get(rows.lease_id(identity, problem))
        if problem.id in settled or (row is not None and not _free(row, time, holder)):
            continue
        rows.add(connection, problems, rows.problem_values(problem))
        taken = Lease(
            id=rows.lease_id(identity, problem),
            identity_id=identity.id,
            problem_id=problem.id,
            holder=holder,
            expires_at=time + timedelta(seconds=seconds),
        )
        if not _take(connection, taken, row is not None, time):
            continue
        if problem.id not in read_settled(connection, identity, since):
            return taken
        release(connection, taken)
    return None


def _take(connection: Connection, wanted: Lease, known: bool, time: datetime) -> bool:
    """Whether the lease is ours now. `known` says that a row of it was seen."""
    ours = leases.c.id == wanted.id
    values: dict[str, Any] = {**vars(wanted), **process.stamp()}
    if known:
        query = select(leases).where(ours).with_for_update(skip_locked=True)
        row = connection.execute(query).one_or_none()
        if row is None or not _free(row, time, wanted.holder):
            return False
        connection.execute(update(leases).where(ours).values(values))
        return True
    rows.add(connection, leases, values)
    # Of two that found no row at once, the first insert stands.
    holder = connection.execute(select(leases.c.holder).where(ours)).scalar_one_or_none()
    return holder == wanted.holder


def _free(row: Row[Any], time: datetime, holder: str) -> bool:
    """Whether nobody else has it: it ran out, its process is gone, or it is ours already."""
    gone = process.gone(row.host, row.pid, row.process_started)
    return row.expires_at <= time or row.holder == holder or gone


def live(connection: Connection, identity: Identity) -> set[str]:
    """Ids of the problems that someone has a lease of at this moment."""
    time = now(connection)
    query = select(leases).where(leases.c.identity_id == identity.id)
    return {row.problem_id for row in connection.execute(query) if not _free(row, time, "")}


def renew(connection: Connection, held: Lease, seconds: float) -> Lease | None:
    """The lease with a later end; None where someone else has taken it meanwhile."""
    until = now(connection) + timedelta(seconds=seconds)
    mine = (leases.c.id == held.id) & (leases.c.holder == held.holder)
    done = connection.execute(update(leases).where(mine).values(expires_at=until))
    if done.rowcount == 0:
        return None
    return Lease(**{**vars(held), "expires_at": until})


def release(connection: Connection, held: Lease) -> None:
    """Gives the problem back, if it is still held by this lease."""
    mine = (leases.c.id == held.id) & (leases.c.holder == held.holder)
    connection.execute(delete(leases).where(mine))
