"""SQLite files as the standard library opens them, for engines and for who cannot wait for
SQLAlchemy's import: a connection, and which generation a name names. Nothing is written here.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

_NAMED = (
    "SELECT generation_id FROM generation_names WHERE name = ? "
    "ORDER BY named_at DESC, id DESC LIMIT 1"
)


def connect(file: Path, mode: str, busy_s: float) -> sqlite3.Connection:
    """A connection in `mode` ("ro", "rw", "rwc" or "immutable") that waits `busy_s` for a lock."""
    modes = "immutable=1" if mode == "immutable" else f"mode={mode}"
    # isolation_level=None: the engine's own BEGIN is the only one. Pooled connections may change
    # threads.
    return sqlite3.connect(
        f"file:{quote(os.fsencode(file.absolute()))}?{modes}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
    )


def read_mode(file: Path) -> str:
    """ "ro", or "immutable" where the folder cannot hold the files that WAL mode needs even for
    reading.
    """
    wal = file.with_name(file.name + "-wal")
    needs_files = not wal.exists() and not os.access(file.parent, os.W_OK)
    return "immutable" if needs_files else "ro"


def named(file: Path, name: str) -> str | None:
    """The id of the generation that `name` names, as `Generations.named` has it; None where it
    names none, or the file cannot say so at once: it is locked, damaged or no database of ours."""
    try:
        with closing(connect(file, read_mode(file), busy_s=0)) as connection:
            row = connection.execute(_NAMED, (name,)).fetchone()
    except sqlite3.Error:
        return None
    return None if row is None else str(row[0])
