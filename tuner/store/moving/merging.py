"""The union of evidence: rows of bundles, exported tables and other databases into one database.

Rows are content: what is there already stays as it is, so that the order of merging does not matter
and merging twice changes nothing. All rows of a source are checked before the first is written.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from humming.dispatch.tables import read_exported
from humming.errors import StoreError
from tuner.store.connections import Connections, PrunedError
from tuner.store.moving.bundle import GZIP, read_bundle, write_bundle
from tuner.store.moving.checks import Checker, contradicting
from tuner.store.moving.plain import TABLES, read_rows, to_plain
from tuner.store.schema import measurements

Rows: TypeAlias = Callable[[], Iterator[tuple[Any, Any]]]
"""Gives a source's rows, unchecked, from the start at each call."""

_BATCH = 400
"""Rows of one statement: SQLite takes 32,766 values at most."""
_ROWS_A_TRANSACTION = 4000
_TRIES = 5
"""How often a source is taken in anew when rows of its earlier parts are pruned meanwhile."""


@dataclass
class Merged:
    """How many rows of each table came new, and how many were there already."""

    added: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)


def export(source: Connections, path: Path) -> int:
    """Writes all evidence of a database as a bundle; how many rows."""
    return source.read(
        lambda connection: write_bundle(path, read_rows(connection), source.address.shown)
    )


def copy_rows(source: Connections, target: Connections) -> Merged:
    """Adds all evidence of one open database to another."""
    with snapshot(source) as rows:
        return merge(target, rows)


@contextmanager
def snapshot(source: Connections) -> Iterator[Rows]:
    """All evidence of an open database as it is now, by way of a bundle that is deleted afterwards:
    it is checked like any other."""
    with tempfile.TemporaryDirectory(prefix="humming-merge-") as folder:
        path = Path(folder) / "bundle"
        export(source, path)
        yield lambda: read_bundle(path)


def merge_file(target: Connections, path: Path) -> Merged:
    """Adds the rows of a bundle, or of an exported table, to a database."""
    return merge(target, file_rows(path))


def check(sources: Sequence[Rows]) -> None:
    """Raises StoreError unless all rows of all sources are sound, and no two of them contradict
    each other."""
    for _ in _all_batches(sources):
        pass


def merge(target: Connections, source: Rows) -> Merged:
    """As `merge_all` of one source."""
    return merge_all(target, [source])[0]


def merge_all(target: Connections, sources: Sequence[Rows]) -> list[Merged]:
    """Adds what `sources` give; a row that is not sound, or that contradicts one of the same id,
    refuses all of it. Then rows are written in parts: what an outage leaves undone, the next merge
    does. Raises StoreError."""
    for batch in _all_batches(sources):
        target.read(lambda c, batch=batch: _contradiction(c, batch))  # type: ignore[misc]
    return [_take(target, source) for source in sources]


def _take(target: Connections, source: Rows) -> Merged:
    """Writes a source that was checked; from its start again where rows that it wrote were pruned
    before it wrote those that refer to them."""
    merged = Merged()
    for left in reversed(range(_TRIES)):
        try:
            _write(target, source, merged)
            break
        except PrunedError:
            if not left:
                raise
            merged.known.clear()
    return merged


def _write(target: Connections, source: Rows, merged: Merged) -> None:
    batches = _batches(source(), Checker())
    while part := list(itertools.islice(batches, _ROWS_A_TRANSACTION // _BATCH)):
        added = target.write(lambda c, part=part: _insert(c, part))  # type: ignore[misc]
        for (table, values), new in zip(part, added, strict=True):
            merged.added[table.name] += new
            merged.known[table.name] += len(values) - new


_Batch: TypeAlias = tuple[Table, list[dict[str, Any]]]


def _all_batches(sources: Sequence[Rows]) -> Iterator[_Batch]:
    """The batches of all sources, checked against each other."""
    checker = Checker()
    for source in sources:
        yield from _batches(source(), checker)


def _batches(source: Iterator[tuple[Any, Any]], checker: Checker) -> Iterator[_Batch]:
    """Checked rows, up to _BATCH of one table at a time."""
    checked = (checker.check(name, plain) for name, plain in source)
    for table, group in itertools.groupby(checked, key=lambda row: row[0]):
        while batch := [values for _, values in itertools.islice(group, _BATCH)]:
            yield table, batch


def _contradiction(connection: Connection, batch: _Batch) -> None:
    """Raises StoreError where a trial is here with other content: its id names what was tried, not
    what came of it."""
    table, values = batch
    if table is not measurements:
        return
    theirs = {row["id"]: row for row in values}
    query = select(table).where(table.c.id.in_(list(theirs)))
    for row in connection.execute(query).mappings():
        if to_plain({**row}) != to_plain(theirs[row["id"]]):
            raise contradicting(row["id"])


def _insert(connection: Connection, part: list[_Batch]) -> list[int]:
    """How many rows of each batch were new."""
    dialect = {"postgresql": postgresql, "sqlite": sqlite}[connection.dialect.name]
    added = []
    for table, values in part:
        _contradiction(connection, (table, values))
        ids = [row["id"] for row in values]
        count = select(func.count()).where(table.c.id.in_(ids))
        before = connection.execute(count).scalar_one()
        insert = dialect.insert(table).on_conflict_do_nothing(index_elements=[table.c.id])
        connection.execute(insert, values)
        added.append(connection.execute(count).scalar_one() - before)
    return added


def file_rows(path: Path) -> Rows:
    """Reads `path` as what its first bytes say: a bundle, unpacked or not, or an exported table.
    Raises StoreError where it is neither."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
    except OSError as error:
        raise StoreError(f"'{path}' cannot be read ({error.strerror}); name a bundle") from None
    if head.startswith(GZIP) or re.match(rb'\{\s*"bundle"', head):
        return lambda: read_bundle(path)
    if head.lstrip().startswith(b"{"):
        return lambda: _table_rows(path)
    if head.startswith(b"SQLite format 3\0"):
        raise StoreError(f"'{path}' is a database, and no file of export; use humming-tune merge")
    raise StoreError(
        f"'{path}' is neither a bundle, an exported table nor a database; name what humming-tune "
        "export wrote"
    )


def _table_rows(path: Path) -> Iterator[tuple[Any, Any]]:
    rows: list[Any] | None = read_exported(path)[1]
    if rows is None:
        raise StoreError(
            f"table '{path}' must hold its winners' rows, but has none; write it with "
            "humming-tune export --table"
        )
    for row in rows:
        if not isinstance(row, list) or len(row) != 2:
            raise StoreError(f"table '{path}' must hold rows, but got {str(row)[:40]}")
        yield row[0], row[1]


def winner_rows(connection: Connection, ids: Sequence[str]) -> list[list[Any]]:
    """The winners `ids` and all that they refer to, as rows of an exported table."""
    wanted: dict[str, set[str]] = {"winners": set(ids)}
    found: dict[str, list[list[Any]]] = {}
    for name in reversed(TABLES):
        table = TABLES[name]
        rows = []
        for batch in _chunks(sorted(wanted.get(name, ()))):
            query = select(table).where(table.c.id.in_(batch)).order_by(table.c.id)
            rows += [to_plain({**row}) for row in connection.execute(query).mappings()]
        found[name] = [[name, row] for row in rows]
        for row, key in itertools.product(rows, table.foreign_keys):
            if row[key.parent.name] is not None:
                wanted.setdefault(key.column.table.name, set()).add(row[key.parent.name])
    return [row for name in TABLES for row in found[name]]


def _chunks(ids: list[str]) -> Iterator[list[str]]:
    return (ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH))
