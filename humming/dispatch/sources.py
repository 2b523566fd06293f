"""Where a table comes from: a file by name, a database by its URL, one of its generations, or the
data folder.

What a table file holds is tables.py. `humming` itself opens no database: a URL goes to the entry
point group `humming.tables`, which whoever owns the database registers.
"""

from __future__ import annotations

import os
import warnings
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import urlsplit

from humming import settings
from humming.dispatch.intervals import TunedTable
from humming.dispatch.pointers import CURRENT, absent, is_id, names_in, pointed
from humming.dispatch.tables import read_table
from humming.errors import HummingError, TableError

ENTRY_POINTS = "humming.tables"
_DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")


def load_table(table: str | Path | TunedTable | None = None) -> TunedTable | None:
    """The table that `table` names, or None where there is none yet.

    A file; a folder of generations; a database URL or SQLite file (its tables lie beside it, and
    are fetched from it where it says otherwise, as after a copy of the file alone); `@NAME` or
    `@ID` for a generation of the database of HUMMING_DB, else of the data folder; None for what
    HUMMING_TABLE names, else that database's current generation. Read again only when the file
    changed. While a server is away its last table serves, with a warning. Raises TableError where
    what is named, or the current generation, is absent or damaged.
    """
    if isinstance(table, TunedTable):
        return table
    path = locate(table)
    if path is None:
        return None
    try:
        stat = path.stat()
    except OSError as error:
        raise TableError(
            f"tuned table '{path}' cannot be read ({error.strerror}); name another one"
        ) from error
    return _read(path, stat.st_mtime_ns, stat.st_size)


def locate(table: str | os.PathLike[str] | None = None) -> Path | None:
    """The file of the table that `table` names (see `load_table`), or None where there is none."""
    name = settings.table_name() if table is None else os.fspath(table)
    if name is not None and name.startswith("@"):
        url = settings.database_url()
        found, place = _generation(url, name[1:]), _without_password(url)
        names = names_in(settings.tables_dir(url))
        if found is None and names:
            raise absent(place, name[1:], names)
        return _named(found, f"{place} {name}")
    if name is not None and "://" not in name and not name.endswith(_DATABASE_SUFFIXES):
        path = Path(name).expanduser()
        return _named(pointed(path), path) if path.is_dir() else path
    url = settings.database_url(name)
    if not url.startswith("sqlite:"):
        return _generation(url, CURRENT)
    if name is not None:
        return _named(_generation(url, CURRENT), settings.tables_dir(name))
    try:
        return _generation(url, CURRENT)
    except _UnaskedError as error:  # nobody named it, so that serving goes on
        warnings.warn(f"{error}; none of its tables serves", RuntimeWarning, stacklevel=3)
        return None


def _generation(url: str, generation: str) -> Path | None:
    """The file of a database's generation, by name or id; what is immutable and here is not asked
    for."""
    folder = settings.tables_dir(url)
    known = pointed(folder, generation)
    if known is not None and is_id(generation):
        return known
    if url.startswith("sqlite:"):
        return _of_file(url, generation, known)
    try:
        return _ask_entry_point(url, generation)
    except HummingError as error:
        if known is None:
            raise
        warnings.warn(f"{error}; its last table serves", RuntimeWarning, stacklevel=4)
        return known


class _UnaskedError(TableError):
    """A SQLite database that is there, but cannot be asked for its table."""


def _of_file(url: str, generation: str, known: Path | None) -> Path | None:
    """What a SQLite database itself says, asked again when it changed: its folder of tables, which
    holds `known`, stays behind where the file is copied, moved or restored."""
    state = _state(url.removeprefix("sqlite:///"))
    if state is None:
        return known
    asked = _ANSWERS.get((url, generation))
    if asked is None or asked[:2] != (state, known) or not _is_here(asked[2]):
        answer: Path | TableError | None
        try:
            answer = _ask_entry_point(url, generation)
        except HummingError as error:
            answer = TableError(str(error)) if type(error) is not TableError else error
        asked = (state, pointed(settings.tables_dir(url), generation), answer)
        _ANSWERS[url, generation] = asked
    answer = asked[2]
    if isinstance(answer, TableError):
        if known is None:
            raise _UnaskedError(str(answer))
        return known
    return answer or known


_State = tuple[tuple[int, int, int], ...]
_ANSWERS: dict[tuple[str, str], tuple[_State, Path | None, Path | TableError | None]] = {}
"""(database, name) -> the database's state and what its folder said then, and what it answered."""


def _state(file: str) -> _State | None:
    """What changes when a SQLite file or its log does; None where there is no such file."""
    found = []
    for path in (Path(file), Path(f"{file}-wal")):
        try:
            stat = path.stat()
        except (OSError, ValueError):
            continue
        if stat.st_size:
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return tuple(found) or None


def _is_here(answer: Path | TableError | None) -> bool:
    return not isinstance(answer, Path) or answer.is_file()


def _named(found: Path | None, place: str | Path) -> Path:
    """What the user named must be there: a mistyped name may not mean the heuristic in silence."""
    if found is None:
        raise TableError(
            f"a named table must exist, but '{place}' holds none; tune with humming-tune --db, or "
            "name the database or table file"
        )
    return found


def _ask_entry_point(url: str, generation: str) -> Path | None:
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    if not found:
        raise TableError(
            f"a database URL needs a package that registers '{ENTRY_POINTS}', but none is "
            f"installed for '{_without_password(url)}'; pip install humming-tune[postgres]"
        )
    try:
        path = found[0].load()(url, generation)
    except HummingError:
        raise
    except Exception as error:  # whatever a foreign package raises must not stop serving unread
        raise TableError(
            f"tables of '{_without_password(url)}' cannot be read ({type(error).__name__}); "
            "check the database or name a table file"
        ) from None
    return Path(path) if path is not None else None


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0] + "://"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


@lru_cache(maxsize=8)
def _read(path: Path, _mtime_ns: int, _size: int) -> TunedTable:
    return read_table(path)
