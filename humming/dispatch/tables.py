"""The tuned table file (schemas 1 to 3):

read, write, find. What a table means for one layer is dispatcher.py.

A folder holds immutable generations `<id>.json` and names, such as `current`, that each name one of
them (pointers.py). `id` is the hash of the entries. A file of schema 2 also says where each record
comes from, and, where it was exported, holds the winners' rows, by which a database takes it in.
One of schema 3 has entries with trials, by which untuned layers may take their neighbours' configs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from humming.dispatch.decode import entry_from_dict, entry_to_dict
from humming.dispatch.intervals import (
    REACH,
    Interval,
    Origin,
    TableEntry,
    Trials,
    TunedTable,
    check_entry,
    serve_intervals,
)
from humming.dispatch.pointers import CURRENT, point, pointed, replace_file
from humming.errors import HummingError, TableError
from humming.spec.canonical import content_hash

__all__ = [
    "REACH",
    "SCHEMA",
    "Interval",
    "Origin",
    "TableEntry",
    "Trials",
    "TunedTable",
    "current_path",
    "current_table",
    "encode",
    "keep_generation",
    "read_exported",
    "read_table",
    "serve_intervals",
    "write_generation",
]

SCHEMA = 3
SCHEMAS = (1, 2, 3)
"""Those that are read. What schemas 2 and 3 added may be absent; a table without trials is written
as schema 2, which older packages read too."""
MAX_BYTES = 256 * 2**20
_KEYS = {"schema", "id", "created", "checksum", "entries"}
_OPTIONAL = {"provenance", "winners"}


def encode(
    entries: Iterable[TableEntry],
    origins: Mapping[str, Origin] | None = None,
    winners: list[list[Any]] | None = None,
) -> tuple[str, bytes]:
    """The id and the file of a table. The same entries, in whatever order, give the same id.

    `origins` says of each record where it comes from; `winners` are rows of the store. Raises
    TableError where an entry is not well formed, or two have the same identity and problem.
    """
    ordered = _ordered(entries)
    plain = [entry_to_dict(entry) for entry in ordered]
    used = {interval.record for entry in ordered for interval in entry.intervals}
    known = {record: vars(origin) for record, origin in (origins or {}).items() if record in used}
    body: dict[str, Any] = {
        "schema": SCHEMA if any(entry.trials for entry in ordered) else 2,
        "id": _id_of(plain),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "entries": plain,
        "provenance": dict(sorted(known.items())),
    }
    if winners is not None:
        body["winners"] = winners
    text = json.dumps({**body, "checksum": content_hash(body)}, indent=1)
    return str(body["id"]), text.encode()


def write_generation(
    entries: Iterable[TableEntry],
    folder: str | Path,
    origins: Mapping[str, Origin] | None = None,
    name: str = CURRENT,
) -> TunedTable:
    """Writes `entries` as one generation file in `folder` (made where missing) and lets `name` name
    it.

    A sound file of the same id is left as it is. Raises TableError where the folder cannot be
    written, and as `encode` does.
    """
    id, content = encode(entries, origins)
    return keep_generation(id, content, folder, name)


def keep_generation(
    id: str, content: bytes, folder: str | Path, name: str | None = CURRENT
) -> TunedTable:
    """Writes the table file `content` as the generation `id` of `folder`, and lets `name` (None: no
    name) name it. Raises TableError where it is not sound, or the folder cannot be written."""
    folder = Path(folder)
    path = folder / f"{id}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        table = _sound(path)
        if table is None:
            table = _parse(content, path)[0]
            if table.id != id:
                raise TableError(f"generation {id} must hold itself, but holds {table.id}")
            replace_file(path, content)
        if name is not None:
            point(folder, name, id)
    except OSError as error:
        raise TableError(
            f"tuned tables must be writable, but '{folder}' is not ({error.strerror}); "
            "choose another folder with --db or HUMMING_DATA"
        ) from error
    return table


def read_table(path: str | Path) -> TunedTable:
    """The table in the file `path`.

    Raises TableError with one sentence on anything but a sound file of a schema of ours.
    """
    return read_exported(path)[0]


def read_exported(path: str | Path) -> tuple[TunedTable, list[Any] | None]:
    """The table in the file `path`, and the winners' rows as they stand there, unchecked; None
    where it has none. Raises TableError as `read_table` does."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TableError(f"it is larger than {MAX_BYTES} bytes")
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise TableError(
            f"tuned table '{path}' cannot be read ({error.strerror}); "
            "name another one or tune again with humming-tune"
        ) from error
    except HummingError as error:
        raise TableError(
            f"tuned table '{path}' cannot be used: {_short(error)}; tune again with humming-tune"
        ) from error


def current_table(folder: str | Path) -> TunedTable | None:
    """The generation that `folder/current` names, or None where there is none yet.

    Raises TableError on damage.
    """
    path = current_path(folder)
    return read_table(path) if path else None


def current_path(folder: str | Path) -> Path | None:
    """The file of the generation that `folder/current` names, or None where there is none yet."""
    return pointed(folder, CURRENT)


def _parse(data: bytes, path: Path) -> tuple[TunedTable, list[Any] | None]:
    try:
        body: Any = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twins
        )
    except (
        ValueError,
        RecursionError,
    ) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise TableError(f"it is no JSON ({str(error)[:80]})") from error
    _check_body(body)
    entries = tuple(entry_from_dict(item) for item in body["entries"])
    _check_entries(entries)
    origins = _origins(body.get("provenance", {}))
    return TunedTable(str(body["id"]), entries, path, origins), body.get("winners")


def _check_body(body: Any) -> None:
    keys = body.keys() if type(body) is dict else set()
    if not keys >= _KEYS or keys - _KEYS - _OPTIONAL:
        raise TableError(f"it must be an object with the keys {', '.join(sorted(_KEYS))}")
    if body["schema"] not in SCHEMAS or type(body["schema"]) is not int:
        raise TableError(
            f"`schema <= {SCHEMA}` must hold, but got {str(body['schema'])[:20]}; "
            "use the package that made it"
        )
    try:
        checksum = content_hash({key: body[key] for key in keys - {"checksum"}})
        id = _id_of(body["entries"])
    except (ValueError, RecursionError) as error:
        raise TableError("its values cannot be checked") from error
    if body["checksum"] != checksum or body["id"] != id:
        raise TableError("its checksum does not match its content, so it is damaged")
    if type(body["entries"]) is not list:
        raise TableError("entries must be a list")
    if type(body.get("winners", [])) is not list:
        raise TableError("winners must be a list")


def _id_of(entries: Any) -> str:
    """The same whatever the schema: what schema 2 added beside entries changes nothing that a table
    serves; trials are a part of their entries."""
    return content_hash([1, entries])


def _origins(values: Any) -> dict[str, Origin]:
    if type(values) is not dict:
        raise TableError("provenance must be an object")
    for record, item in values.items():
        keys = {"host", "promoted_at"}
        if type(item) is not dict or item.keys() != keys or {*map(type, item.values())} != {str}:
            raise TableError(f"provenance of {record[:40]!r} must be host and promoted_at")
    return {record: Origin(**item) for record, item in values.items()}


def _ordered(entries: Iterable[TableEntry]) -> tuple[TableEntry, ...]:
    ordered = tuple(sorted(entries, key=lambda entry: (entry.identity.id, entry.problem.id)))
    _check_entries(ordered)
    return ordered


def _check_entries(entries: tuple[TableEntry, ...]) -> None:
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        check_entry(entry)
        key = (entry.identity.id, entry.problem.id)
        if key in seen:
            raise TableError(
                "each identity and layer must have one entry, but got two for "
                f"{entry.problem.format} n={entry.problem.n} k={entry.problem.k}"
            )
        seen.add(key)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return values


def _sound(path: Path) -> TunedTable | None:
    try:
        return read_table(path)
    except TableError:
        return None
