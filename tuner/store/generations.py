"""Generations of tuned tables in the database: immutable, by id, and what each name named when.

What a table holds is humming/dispatch/tables.py; evidence and winners are elsewhere.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, select, text

from humming.dispatch.pointers import CURRENT
from humming.dispatch.tables import MAX_BYTES, TunedTable
from humming.errors import StoreError
from humming.spec.canonical import content_hash
from tuner.store import process, rows
from tuner.store.connections import Connections, now
from tuner.store.decisions import read_winners
from tuner.store.records import Winner
from tuner.store.schema import generation_names, generations

_PUBLISHING = 0x68756D6D696E68
"""Key of the PostgreSQL advisory lock of all who publish; SQLite has one writer anyway."""


@dataclass(frozen=True)
class Generation:
    """One generation: its id, how many entries it has, which host wrote it and when, and the names
    that name it now.
    """

    id: str
    entries: int
    host: str
    created_at: datetime
    names: tuple[str, ...] = ()


class Generations:
    """The verbs of generations of one open database; each is one transaction. Raise StoreError."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def add(self, id: str, entries: int, content: bytes, name: str) -> None:
        """Keeps the table file `content` under `id` where it is new, and lets `name` name it."""

        self._connections.write(lambda c: _add(c, id, entries, content, name))

    def publish(
        self, keep: Callable[[list[Winner]], tuple[TunedTable, bytes]]
    ) -> TunedTable | None:
        """What `keep` makes of the winners as the generation that `current` names; None where there
        are none. One at a time: who publishes last has seen all that others promoted before.
        """

        def write(connection: Connection) -> TunedTable | None:
            if connection.dialect.name == "postgresql":
                lock = text("SELECT pg_advisory_xact_lock(:key)")
                connection.execute(lock, {"key": _PUBLISHING})
            found = read_winners(connection, None)
            if not found:
                return None
            table, content = keep(found)
            _add(connection, table.id, len(table.entries), content, CURRENT)
            return table

        return self._connections.write(write)

    def content(self, id: str) -> bytes | None:
        """The table file of a generation; None where there is none of that id."""
        query = select(generations.c.content).where(generations.c.id == id)
        packed = self._connections.read(lambda c: c.execute(query).scalar_one_or_none())
        if packed is None:
            return None
        unpacker = zlib.decompressobj()
        try:
            content = unpacker.decompress(packed, MAX_BYTES)
        except zlib.error:
            content = b""
        if not unpacker.eof:
            raise StoreError(f"generation {id} of {self._connections.address.shown} is damaged")
        return content

    def named(self, name: str) -> str | None:
        """The id of the generation that `name` names now; None where it names none."""
        return self._connections.read(lambda c: _named(c, name))

    def list(self) -> list[Generation]:
        """All generations in order of their writing."""
        return self._connections.read(_list)

    def name(self, name: str, id: str) -> None:
        """Lets `name` name the generation `id` from now on, which must be here."""
        self._connections.write(lambda c: _name(c, name, id))

    def step(self, name: str, by: int) -> str:
        """Lets `name` go back (-1) to what it named before, or forward (1), which takes a step
        back back; the id that it names then. Naming drops what was ahead, as in a browser.
        """
        return self._connections.write(lambda c: _step(c, name, by))


def _add(connection: Connection, id: str, entries: int, content: bytes, name: str) -> None:
    values = {
        "id": id,
        "entries": entries,
        "content": zlib.compress(content, 6),
        "host": process.host(),
        "created_at": now(connection),
    }
    rows.add(connection, generations, values)
    _name(connection, name, id)


def _named(connection: Connection, name: str) -> str | None:
    latest = _latest(connection, name)
    return None if latest is None else str(latest.generation_id)


def _latest(connection: Connection, name: str) -> Row[Any] | None:
    """What `name` named last, and when."""
    order = (generation_names.c.named_at.desc(), generation_names.c.id.desc())
    query = select(generation_names).where(generation_names.c.name == name)
    return connection.execute(query.order_by(*order).limit(1)).first()


def _history(connection: Connection, name: str) -> tuple[list[str], int]:
    """The generations that `name` can go back and forward to, oldest first, and the place of the
    one that it names; -1 where it names none.

    The rows of a generation that was pruned are gone, so a step ends at the nearest place that
    holds what it led to.
    """
    query = (
        select(generation_names)
        .where(generation_names.c.name == name)
        .order_by(generation_names.c.named_at, generation_names.c.id)
    )
    path: list[str] = []
    place = -1
    for row in connection.execute(query):
        values, id = row._asdict(), row.generation_id
        key = values.pop("id")
        ways = {-1: range(place, -1, -1), 1: range(place, len(path))}
        by = next((by for by in ways if key == _row_id(values, by)), 0)
        found = next((at for at in ways.get(by, ()) if path[at] == id), None)
        if found is not None:
            place = found
            continue
        del path[place + 1 :]
        if path[-1:] != [id]:
            path.append(id)
        place = len(path) - 1
    return path, place


def _row_id(values: dict[str, Any], by: int) -> str:
    """The id of a row of names: it tells a step of `by` places from a naming (0)."""
    content = {**values, "named_at": values["named_at"].isoformat()}
    return content_hash({**content, "step": by} if by else content)


def _list(connection: Connection) -> list[Generation]:
    columns = [c for c in generations.c if c.name != "content"]
    names = connection.execute(select(generation_names.c.name).distinct()).scalars()
    named = {name: _named(connection, name) for name in sorted(names)}
    query = select(*columns).order_by(generations.c.created_at, generations.c.id)
    return [
        Generation(**row._mapping, names=tuple(n for n, id in named.items() if id == row.id))
        for row in connection.execute(query)
    ]


def _name(connection: Connection, name: str, id: str, step: int = 0) -> None:
    latest, time = _latest(connection, name), now(connection)
    if latest is not None and latest.generation_id == id:
        return
    if connection.execute(select(generations.c.id).where(generations.c.id == id)).first() is None:
        raise StoreError(f"a name must name a generation that is here, but there is no {id}")
    if latest is not None:  # a clock that was set back hides no newer row
        time = max(time, latest.named_at + timedelta(microseconds=1))
    values = {"name": name, "generation_id": id, "host": process.host(), "named_at": time}
    rows.add(connection, generation_names, {"id": _row_id(values, step), **values})


def _step(connection: Connection, name: str, by: int) -> str:
    path, place = _history(connection, name)
    if not path:
        raise StoreError(f"a name must name a generation first, but '{name}' names none")
    if not 0 <= place + by < len(path):
        end = "first" if by < 0 else "last"
        raise StoreError(
            f"'{name}' names the {end} of its {len(path)} generations already; choose one with "
            "humming-tune table name"
        )
    _name(connection, name, path[place + by], by)
    return path[place + by]
