"""The tuned table file (schema 1):

read, write, find. What a table means for one layer is dispatcher.py.

A folder holds immutable generations `<id>.json` and a file `current` that names one of them. Both
appear by rename, so that a reader sees the old generation or the new one, never a piece of either.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from humming.dispatch.decode import entry_from_dict, entry_to_dict
from humming.dispatch.intervals import (
    REACH,
    Interval,
    TableEntry,
    TunedTable,
    check_entry,
    serve_intervals,
)
from humming.errors import HummingError, TableError
from humming.spec.canonical import content_hash

__all__ = [
    "REACH",
    "SCHEMA",
    "Interval",
    "TableEntry",
    "TunedTable",
    "current_path",
    "current_table",
    "read_table",
    "serve_intervals",
    "write_generation",
]

SCHEMA = 1
MAX_BYTES = 256 * 2**20
_KEYS = {"schema", "id", "created", "checksum", "entries"}
_ID = re.compile(r"[0-9a-f]{32}")


def write_generation(entries: Iterable[TableEntry], folder: str | Path) -> TunedTable:
    """Writes `entries` as one generation file in `folder` (made where missing) and points
    `current` at it.

    The same entries, in whatever order, give the same id; a sound file of that id is left as it
    is. Raises TableError where the folder cannot be written, an entry is not well formed, or
    two entries have the same identity and problem.
    """
    folder = Path(folder)
    ordered = tuple(sorted(entries, key=lambda entry: (entry.identity.id, entry.problem.id)))
    _check_entries(ordered)
    plain = [entry_to_dict(entry) for entry in ordered]
    body = {
        "schema": SCHEMA,
        "id": content_hash([SCHEMA, plain]),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "entries": plain,
    }
    path = folder / f"{body['id']}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not _sound(path):
            _replace(path, json.dumps({**body, "checksum": content_hash(body)}, indent=1))
        pointer = folder / "current"
        if not (pointer.exists() and pointer.read_text("utf-8", "replace").strip() == body["id"]):
            _replace(pointer, f"{body['id']}\n")
    except OSError as error:
        raise TableError(
            f"tuned tables must be writable, but '{folder}' is not ({error.strerror}); "
            "choose another folder with --db or HUMMING_DATA"
        ) from error
    return TunedTable(str(body["id"]), ordered, path)


def read_table(path: str | Path) -> TunedTable:
    """The table in the file `path`.

    Raises TableError with one sentence on anything but a sound file of schema 1.
    """
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
    pointer = Path(folder) / "current"
    try:
        name = pointer.read_bytes().decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TableError(
            f"'{pointer}' must be readable, but is not ({error.strerror}); mend its permissions"
        ) from error
    if not _ID.fullmatch(name):
        raise TableError(
            f"'{pointer}' must hold a table's id, but got {name[:40]!r}; delete it or tune again"
        )
    return Path(folder) / f"{name}.json"


def _parse(data: bytes, path: Path) -> TunedTable:
    try:
        body: Any = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_twins
        )
    except (
        ValueError,
        RecursionError,
    ) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise TableError(f"it is no JSON ({str(error)[:80]})") from error
    if type(body) is not dict or body.keys() != _KEYS:
        raise TableError(f"it must be an object with the keys {', '.join(sorted(_KEYS))}")
    if body["schema"] != SCHEMA or type(body["schema"]) is not int:
        raise TableError(
            f"`schema == {SCHEMA}` must hold, but got {str(body['schema'])[:20]}; "
            "use the package that made it"
        )
    try:
        checksum = content_hash({key: body[key] for key in _KEYS - {"checksum"}})
        id = content_hash([SCHEMA, body["entries"]])
    except (ValueError, RecursionError) as error:
        raise TableError("its values cannot be checked") from error
    if body["checksum"] != checksum or body["id"] != id:
        raise TableError("its checksum does not match its content, so it is damaged")
    if type(body["entries"]) is not list:
        raise TableError("entries must be a list")
    entries = tuple(entry_from_dict(item) for item in body["entries"])
    _check_entries(entries)
    return TunedTable(id, entries, path)


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


def _sound(path: Path) -> bool:
    try:
        read_table(path)
    except TableError:
        return False
    return True


def _replace(path: Path, text: str) -> None:
    """Makes `path` hold `text` by one rename; the data is on disk before the name is."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
