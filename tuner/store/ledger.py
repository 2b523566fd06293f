"""The ledger in the database: what serving processes counted, taken in from their files, and summed
up by problem. Who counts is humming/ledger.py.

A process writes all that it counted each time, so of two rows of one process and problem the larger
stands, in whatever order they come.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects import postgresql, sqlite

from humming.dispatch.decode import decode
from humming.errors import HummingError
from humming.ledger import SCHEMA
from humming.spec.canonical import content_hash
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import process, rows
from tuner.store.connections import Connections, now
from tuner.store.open import open_store
from tuner.store.schema import identities, ledger, problems

RECENT = timedelta(days=30)
"""What was counted longer ago tells nothing about today's traffic."""
_MOST_BYTES = 64 << 20
_COUNT_END = 2**62
_SURROGATE = re.compile("[\\ud800-\\udfff]")


@dataclass(frozen=True)
class Traffic:
    """How often a problem, its m included, was called on devices of a kind, and how often a
    heuristic config served it."""

    problem: Problem
    calls: int
    misses: int


@dataclass(frozen=True)
class _Counted:
    identity: Identity
    problem: Problem
    values: dict[str, Any]


def record(url: str, folder: Path) -> int:
    """The entry point `humming.ledger`: takes the files of `folder` into the database at `url`. How
    many rows. Raises StoreError."""
    if not any(folder.glob("*.json")):
        return 0
    with open_store(url, create=False, upgrade=False) as store:
        return absorb(store.connections, folder)


def absorb(connections: Connections, folder: Path) -> int:
    """Takes in what the files of `folder` say; those of processes that are gone are deleted then.
    A file that is damaged or of another version is left alone."""
    taken = 0
    for path in sorted(folder.glob("*.json")):
        found = _read(path)
        if found is None:
            continue
        counted, gone = found
        connections.write(lambda c, counted=counted: _add(c, counted))  # type: ignore[misc]
        taken += len(counted)
        if gone:
            with suppress(OSError):
                path.unlink()
    return taken


def traffic(connections: Connections, device: Device) -> list[Traffic]:
    """What was asked of devices like `device` lately, by whatever version of this package. What
    this version cannot read is left out."""
    return connections.read(lambda c: _traffic(c, device))


def _add(connection: Connection, counted: list[_Counted]) -> None:
    dialect = {"postgresql": postgresql, "sqlite": sqlite}[connection.dialect.name]
    for identity in {one.identity.id: one.identity for one in counted}.values():
        rows.add_identity(connection, identity)
    for one in counted:
        rows.add(connection, problems, rows.problem_values(one.problem))
        new = dialect.insert(ledger).values(one.values)
        later = {name: new.excluded[name] for name in ("calls", "misses", "until")}
        more = new.excluded.calls > ledger.c.calls
        connection.execute(
            new.on_conflict_do_update(index_elements=[ledger.c.id], set_=later, where=more)
        )


def _traffic(connection: Connection, device: Device) -> list[Traffic]:
    alike = select(identities.c.id).where(identities.c.device_id == device.id)
    sums = (
        select(
            ledger.c.problem_id,
            func.sum(ledger.c.calls).label("calls"),
            func.sum(ledger.c.misses).label("misses"),
        )
        .where(ledger.c.identity_id.in_(alike), ledger.c.until > now(connection) - RECENT)
        .group_by(ledger.c.problem_id)
        .order_by(ledger.c.problem_id)
    )
    found = connection.execute(sums).all()
    used = problems.c.id.in_(select(ledger.c.problem_id).where(ledger.c.identity_id.in_(alike)))
    known = rows.made(connection, problems, used, rows.problem_of)
    return [
        Traffic(problem, int(row.calls), int(row.misses))
        for row in found
        if (problem := known.get(row.problem_id)) is not None
    ]


def _read(path: Path) -> tuple[list[_Counted], bool] | None:
    """What a file says, and whether its process is gone; None where it is not such a file."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        content = json.loads(path.read_text("utf-8"))
        if content["schema"] != SCHEMA or not _storable(content):
            return None
        counted = list(_counted(content))
        ours = content["host"] == socket.gethostname()
        gone = process.started(content["pid"]) is None if ours else _old(content["until"])
        return counted, gone
    except (
        OSError,
        ArithmeticError,
        ValueError,
        KeyError,
        TypeError,
        RecursionError,
        HummingError,
    ):
        return None


def _storable(content: Any) -> bool:
    """Whether its texts are such as databases take: no NUL, no half of a surrogate pair."""
    text = json.dumps(content, ensure_ascii=False)
    return "\\u0000" not in text and _SURROGATE.search(text) is None


def _old(until: str) -> bool:
    """Whether a process of another host, which cannot be asked, has been silent for long."""
    return datetime.fromisoformat(until) < datetime.now(timezone.utc) - RECENT


def _counted(content: dict[str, Any]) -> Iterator[_Counted]:
    times = {name: datetime.fromisoformat(content[name]) for name in ("since", "until")}
    if not all(time.tzinfo for time in times.values()):
        raise ValueError("a time without a zone")
    times = {name: time.astimezone(timezone.utc) for name, time in times.items()}
    times["until"] = min(times["until"], datetime.now(timezone.utc))
    if type(content["host"]) is not str or type(content["pid"]) is not int:
        raise ValueError("a process without a name")
    who = f"{content['host'][:200]}:{content['pid']}:{content['since'][:40]}"
    if not isinstance(content["identities"], dict):
        raise TypeError("identities without names")
    machines = {name: _identity(values) for name, values in content["identities"].items()}
    for call in content["calls"]:
        identity = machines[call["identity"]]
        problem = decode(Problem, call["problem"], "problem")
        calls, misses = call["calls"], call["misses"]
        if not (type(calls) is type(misses) is int and 0 <= misses <= calls < _COUNT_END):
            raise ValueError("counts that cannot be")
        values = {
            "id": content_hash([who, identity.id, problem.id]),
            "identity_id": identity.id,
            "problem_id": problem.id,
            "process": who,
            "calls": calls,
            "misses": misses,
            **times,
        }
        yield _Counted(identity, problem, values)


def _identity(values: dict[str, Any]) -> Identity:
    fields = dict(values)
    device = decode(Device, fields.pop("device"), "identity.device")
    return decode(Identity, fields, "identity", device=device)
