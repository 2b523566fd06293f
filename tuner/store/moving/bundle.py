"""The bundle file: all evidence of a database as compressed lines of JSON; read unpacked too.

The first line says what it is and where it comes from, then one row a line, `["devices", {...}]`,
the last one how many rows and the SHA-256 of all lines before. What a row may hold is checks.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from humming.dispatch.pointers import check_replaceable
from humming.errors import StoreError
from humming.spec.canonical import canonical_json
from humming.version import __version__
from tuner.store import process
from tuner.store.moving.plain import Plain

BUNDLE = 1
"""Version of this file format. A row's columns are those of the database's revision."""
GZIP = b"\x1f\x8b"
"""How a compressed file begins."""
MAX_LINE = 16 * 2**20
MAX_BYTES = 64 * 2**30
_LEVEL = 6


def write_bundle(path: Path, rows: Iterable[tuple[str, Plain]], shown: str) -> int:
    """Writes `rows` of the database named `shown` by one rename; how many they are. The same rows
    give the same bytes but for the first line. Raises StoreError where `path` cannot be written."""
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        check_replaceable(path)
        with temporary.open("xb") as raw:
            with gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as file:
                count = _write(file, rows, shown)
            raw.flush()
            os.fsync(raw.fileno())
        temporary.replace(path)
    except OSError as error:
        raise StoreError(
            f"--out must be a file that can be written, but got '{path}' ({error.strerror})"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink()
    return count


def _write(file: gzip.GzipFile, rows: Iterable[tuple[str, Plain]], shown: str) -> int:
    digest, count = hashlib.sha256(), 0

    def line(value: Any) -> None:
        data = canonical_json(value).encode() + b"\n"
        digest.update(data)
        file.write(data)

    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    origin = {"host": process.host(), "database": shown, "product_version": __version__}
    line({"bundle": BUNDLE, "created": created, "provenance": origin})
    for count, row in enumerate(rows, start=1):  # noqa: B007
        line(list(row))
    last = {"rows": count, "sha256": digest.hexdigest()}
    file.write(canonical_json(last).encode() + b"\n")
    return count


def read_bundle(path: Path) -> Iterator[tuple[Any, Any]]:
    """The rows of a bundle as (table, values), unchecked; StoreError, at its end at the latest,
    where the file is damaged, cut off or no bundle."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(len(GZIP)) == GZIP
            raw.seek(0)
            yield from _read(gzip.GzipFile(fileobj=raw) if packed else raw, path)
    except (OSError, EOFError, zlib.error) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise StoreError(f"bundle '{path}' cannot be read ({said}); export it again") from None


def _read(file: gzip.GzipFile | BinaryIO, path: Path) -> Iterator[tuple[Any, Any]]:
    digest, count, size = hashlib.sha256(), 0, 0
    data = file.readline(MAX_LINE)
    head = _json(data, path)
    if type(head) is not dict or "bundle" not in head:
        _damaged(path, "it does not begin as a bundle")
    if head["bundle"] != BUNDLE:
        _damaged(path, f"`bundle == {BUNDLE}` must hold, but got {str(head['bundle'])[:20]}")
    while True:
        digest.update(data)
        size += len(data)
        if size > MAX_BYTES:
            _damaged(path, f"it holds more than {MAX_BYTES} bytes")
        data = file.readline(MAX_LINE)
        row = _json(data, path)
        if type(row) is dict:
            break
        if type(row) is not list or len(row) != 2:
            _damaged(path, f"line {count + 2} is no row")
        count += 1
        yield row[0], row[1]
    if row != {"rows": count, "sha256": digest.hexdigest()} or file.read(1):
        _damaged(path, "its checksum does not match its content")


def _json(data: bytes, path: Path) -> Any:
    if not data.endswith(b"\n"):
        _damaged(path, "it is cut off, or a line is too long")
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        _damaged(path, "a line is no JSON")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _damaged(path: Path, why: str) -> NoReturn:
    raise StoreError(f"bundle '{path}' cannot be used: {why}; export it again, nothing was changed")
