"""Names in a folder of generations: each a small file that holds the id of one of them.

What a generation holds is tables.py. Files appear by rename, so that a reader sees the old one or
the new one, never a piece of either.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from humming.errors import TableError
from humming.spec.naming import did_you_mean

CURRENT = "current"
"""The name that every tuning moves on, and that serves where nothing else is named."""

_ID = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}")


def is_id(text: str) -> bool:
    """Whether `text` is the id of a generation, and so no name."""
    return _ID.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Raises TableError unless `name` may name a generation."""
    if not _NAME.fullmatch(name) or is_id(name) or name.endswith((".json", ".tmp")):
        raise TableError(
            "a generation's name must be at most 63 of a-z, 0-9, '_', '.', '-', a letter first and "
            f"no id or file, but got {name[:80]!r}; write such as 'prod'"
        )


def absent(place: str, generation: str, names: Iterable[str]) -> TableError:
    """What to raise where `place`, whose generations have `names`, has none of that name or id."""
    what = "id" if is_id(generation) else "name"
    return TableError(
        f"no generation of '{place}' has the {what} '{generation[:80]}'; humming-tune table list "
        f"shows those that are there{did_you_mean(generation, names)}"
    )


def names_in(folder: Path) -> list[str]:
    """The names that name generations of `folder`; none where it cannot be read."""
    try:
        files = [file.name for file in folder.iterdir() if file.is_file()]
    except OSError:
        return []
    return sorted(name for name in files if _NAME.fullmatch(name) and not name.endswith(".json"))


def pointed(folder: str | Path, name: str = CURRENT) -> Path | None:
    """The file of the generation that `name`, or an id, names in `folder`; None where none is.

    Raises TableError on a name that cannot be read or is damaged.
    """
    folder = Path(folder)
    if is_id(name):
        file = folder / f"{name}.json"
        return file if file.is_file() else None
    id = pointed_id(folder, name)
    return None if id is None else folder / f"{id}.json"


def pointed_id(folder: Path, name: str) -> str | None:
    """The id that the file `name` holds; None where there is no such file."""
    check_name(name)
    pointer = folder / name
    try:
        id = pointer.read_bytes().decode("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TableError(
            f"'{pointer}' must be readable, but is not ({error.strerror}); mend its permissions"
        ) from error
    if not is_id(id):
        raise TableError(
            f"'{pointer}' must hold a table's id, but got {id[:40]!r}; delete it or tune again"
        )
    return id


def point(folder: Path, name: str, id: str) -> None:
    """Lets `name` name the generation `id`. Raises OSError, or TableError on a bad name."""
    check_name(name)
    pointer = folder / name
    if not (pointer.exists() and pointer.read_text("utf-8", "replace").strip() == id):
        replace_file(pointer, f"{id}\n".encode())


def check_replaceable(path: Path) -> None:
    """Raises OSError where `path` names a folder, a device, a pipe or nothing, which a rename must
    not replace."""
    if not path.name or path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is no regular file", str(path))


def replace_file(path: Path, content: bytes) -> None:
    """Makes `path` hold `content` by one rename; the data is on disk before the name is. Raises
    OSError."""
    check_replaceable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
