"""Statements about trials: in flight, finished, orphaned, quarantined. Each runs in the caller's
transaction.

What follows from evidence (settled problems, winners, leases) is decisions.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, select, true

from humming.spec.canonical import content_hash
from humming.spec.config import KernelConfig, config_id
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import process, rows
from tuner.store.connections import now
from tuner.store.records import Measurement, MeasurementDraft, Outcome, Ticket
from tuner.store.schema import configs, devices, identities, in_flight, measurements, problems
from tuner.store.sources import Alike

FOREIGN_ORPHAN_AGE = timedelta(hours=1)
"""A launch of another host or container counts as lost after this long, as its process cannot be
asked."""
ATTEMPTS = 2
"""A launch that never came back is tried once more; lost this many times, the candidate is
quarantined.
"""

Pair = tuple[str, str]


def measurement_id(identity_id: str, problem_id: str, config_id: str | None, nonce: str) -> str:
    """Content hash that names one trial, the same on every host that it is merged into."""
    return content_hash([identity_id, problem_id, config_id, nonce])


def begin(
    connection: Connection, identity: Identity, problem: Problem, config: KernelConfig, nonce: str
) -> Ticket:
    """Writes the launch down, in place of orphans of the same candidate."""
    rows.add_identity(connection, identity)
    rows.add(connection, problems, rows.problem_values(problem))
    rows.add(connection, configs, rows.config_values(config))
    time = now(connection)
    name = config_id(config)
    same = (
        (in_flight.c.identity_id == identity.id)
        & (in_flight.c.problem_id == problem.id)
        & (in_flight.c.config_id == name)
    )
    lost = [row for row in connection.execute(select(in_flight).where(same)) if orphan(row, time)]
    attempts = 1 + max((row.attempts for row in lost), default=0)
    ticket = Ticket(
        id=measurement_id(identity.id, problem.id, name, nonce),
        identity_id=identity.id,
        problem_id=problem.id,
        config_id=name,
        nonce=nonce,
        attempts=attempts,
        started_at=time,
    )
    if lost:
        connection.execute(delete(in_flight).where(in_flight.c.id.in_([row.id for row in lost])))
    rows.add(
        connection,
        in_flight,
        {
            "id": ticket.id,
            "identity_id": identity.id,
            "problem_id": problem.id,
            "config_id": name,
            "started_at": time,
            "attempts": attempts,
            **process.stamp(),
        },
    )
    return ticket


def orphan(row: Row[Any], time: datetime) -> bool:
    """Whether the process that began this launch is gone."""
    if process.elsewhere(row.host, row.process_started):
        return bool(row.started_at < time - FOREIGN_ORPHAN_AGE)
    return process.gone(row.host, row.pid, row.process_started)


def finish(
    connection: Connection, ticket: Ticket | None, draft: MeasurementDraft, nonce: str
) -> Measurement:
    """Adds the measurement and takes the launch back, together."""
    rows.add_identity(connection, draft.identity)
    rows.add(connection, problems, rows.problem_values(draft.problem))
    if draft.config is not None:
        rows.add(connection, configs, rows.config_values(draft.config))
    time = now(connection)
    error = draft.error if draft.error is not None and math.isfinite(draft.error) else None
    values: dict[str, Any] = {
        "id": measurement_id(draft.identity.id, draft.problem.id, draft.config_id, nonce),
        "identity_id": draft.identity.id,
        "problem_id": draft.problem.id,
        "config_id": draft.config_id,
        "nonce": nonce,
        "kind": draft.kind,
        "outcome": draft.outcome,
        "us": draft.us,
        "samples": list(draft.samples),
        "error": error,
        "detail": rows.stored_text(draft.detail),
        "compile_s": draft.compile_s,
        "started_at": ticket.started_at if ticket else time,
        "finished_at": time,
        "host": process.host(),
        "pid": os.getpid(),
        "device_uuid": draft.identity.device.uuid,
        "conditions": dict(draft.conditions),
    }
    rows.add(connection, measurements, values)
    connection.execute(delete(in_flight).where(in_flight.c.id == values["id"]))
    return measurement_of(values, draft.problem, draft.config)


def abandon(connection: Connection, ticket: Ticket) -> None:
    """Takes the launch back, evidence or not."""
    connection.execute(delete(in_flight).where(in_flight.c.id == ticket.id))


def measurement_of(
    values: Mapping[str, Any], problem: Problem, config: KernelConfig | None
) -> Measurement:
    """The one place where a Measurement is made."""
    fields = {**values, "samples": tuple(map(float, values["samples"]))}
    return Measurement(**fields, problem=problem, config=config)


def read_measurements(
    connection: Connection, identity: Identity, problem: Problem | None, outcome: Outcome | None
) -> list[Measurement]:
    """Evidence in order of time, also of like machines where the config's own kernel sources were
    the same. What this version cannot read is left out."""
    alike = Alike(connection, identity)
    query = (
        select(*rows.labelled(measurements, problems, configs))
        .select_from(measurements.join(problems).outerjoin(configs))
        .where(measurements.c.identity_id.in_(alike.ids))
        .order_by(measurements.c.finished_at, measurements.c.id)
    )
    if problem is not None:
        query = query.where(measurements.c.problem_id == problem.id)
    if outcome is not None:
        query = query.where(measurements.c.outcome == outcome)
    found: list[Measurement] = []
    for row in connection.execute(query):
        values = rows.part(row, measurements)
        theirs = rows.problem_of(rows.part(row, problems))
        config = rows.config_of(rows.part(row, configs)) if values["config_id"] else None
        if theirs is None or (config is None) != (values["config_id"] is None):
            continue
        family = None if config is None else config.family
        if alike.hold(values["identity_id"], theirs, family):
            found.append(measurement_of(values, theirs, config))
    return found


def find(connection: Connection, prefix: str) -> list[tuple[Measurement, Identity]]:
    """Trials whose id begins with `prefix`. What this version cannot read is left out."""
    query = (
        select(*rows.labelled(measurements, identities, devices, problems, configs))
        .select_from(
            measurements.join(identities, measurements.c.identity_id == identities.c.id)
            .join(devices, identities.c.device_id == devices.c.id)
            .join(problems, measurements.c.problem_id == problems.c.id)
            .outerjoin(configs, measurements.c.config_id == configs.c.id)
        )
        .where(measurements.c.id.startswith(prefix, autoescape=True))
        .order_by(measurements.c.id)
    )
    found: list[tuple[Measurement, Identity]] = []
    for row in connection.execute(query):
        values = rows.part(row, measurements)
        problem = rows.problem_of(rows.part(row, problems))
        config = rows.config_of(rows.part(row, configs)) if values["config_id"] else None
        device = rows.device_of(rows.part(row, devices))
        if problem is not None and (config is None) == (values["config_id"] is None):
            identity = rows.identity_of(rows.part(row, identities), device)
            found.append((measurement_of(values, problem, config), identity))
    return found


def suspects(connection: Connection, identity: Identity) -> dict[Pair, int]:
    """(problem_id, config_id) -> attempts, for launches of this identity that never came back."""
    return _orphans(connection, in_flight.c.identity_id == identity.id)


def quarantined(connection: Connection, identity: Identity) -> set[Pair]:
    """What must not be launched: it crashed or hung, or was lost ATTEMPTS times, on this device,
    driver and compiler with these sources of its kernel. Neither another product version nor
    another timing policy makes a crash harmless.
    """
    alike = Alike(connection, identity, free=("product_version", "policy"))
    outcome = measurements.c.outcome.in_(("crashed", "timeout"))
    crashed = _holding(connection, measurements, outcome, alike)
    orphans = _orphans(connection, in_flight.c.identity_id.in_(alike.ids))
    lost = {pair for pair, attempts in orphans.items() if attempts >= ATTEMPTS}
    return crashed | (lost & _holding(connection, in_flight, true(), alike) if lost else lost)


def _holding(
    connection: Connection, table: Table, which: ColumnElement[bool], alike: Alike
) -> set[Pair]:
    """The (problem_id, config_id) of rows of `table` that hold on the machine that is asked for."""
    query = (
        select(table.c.identity_id, *rows.labelled(problems, configs))
        .select_from(table.join(problems).join(configs))
        .where(table.c.identity_id.in_(alike.ids), which)
    )
    found: set[Pair] = set()
    for row in connection.execute(query):
        problem = rows.problem_of(rows.part(row, problems))
        if problem is not None and alike.hold(row.identity_id, problem, row.configs__family):
            found.add((problem.id, row.configs__id))
    return found


def _orphans(connection: Connection, which: ColumnElement[bool]) -> dict[Pair, int]:
    time = now(connection)
    attempts: dict[Pair, int] = {}
    for row in connection.execute(select(in_flight).where(which)):
        if orphan(row, time):
            pair = (row.problem_id, row.config_id)
            attempts[pair] = max(attempts.get(pair, 0), row.attempts)
    return attempts
