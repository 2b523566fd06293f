"""Rows of evidence as plain JSON values, and back. Whether a row may be taken in is checks.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Table, select, text

from tuner.store.schema import (
    UtcDateTime,
    configs,
    devices,
    identities,
    measurements,
    problems,
    settled,
    winners,
)

TABLES = {
    table.name: table
    for table in (devices, identities, problems, configs, measurements, settled, winners)
}
"""What moves, each after what it refers to. Launches, leases, ledgers, generations and names are a
database's own."""

Plain = dict[str, Any]
_PAGE = 2000


def to_plain(values: Mapping[str, Any]) -> Plain:
    """A row as JSON has it: times as ISO 8601 in UTC."""
    return {
        str(name): value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def from_plain(table: Table, plain: Plain) -> dict[str, Any]:
    """The row that `to_plain` wrote. Raises ValueError on a time without a zone, or of years that a
    database cannot hold."""
    values = dict(plain)
    for column in table.columns:
        if column.name in values and isinstance(column.type, UtcDateTime):
            time = datetime.fromisoformat(values[column.name])
            if time.utcoffset() != timedelta(0):
                raise ValueError(f"{column.name} must be in UTC")
            values[column.name] = time
    return values


def read_rows(connection: Connection) -> Iterator[tuple[str, Plain]]:
    """Every row that moves, in the order of TABLES and of ids, as one snapshot; `connection` has
    asked for nothing yet in its transaction."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
    for name, table in TABLES.items():
        last = ""
        while True:
            query = select(table).where(table.c.id > last).order_by(table.c.id).limit(_PAGE)
            page = connection.execute(query).mappings().all()
            yield from ((name, to_plain({str(k): v for k, v in row.items()})) for row in page)
            if len(page) < _PAGE:
                break
            last = page[-1]["id"]
