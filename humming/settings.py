"""Where things are kept: cache, data, database, tables; read when asked, never at import. Makes no
folder."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

DEFAULT_DATABASE = "humming.db"


def cache_dir() -> Path:
    """Folder of compiled kernels: HUMMING_CACHE, else the platform's user cache folder."""
    return _folder("HUMMING_CACHE") or platformdirs.user_cache_path("humming")


def data_dir() -> Path:
    """Folder of the default database and tables: HUMMING_DATA, else the platform's user data
    folder."""
    return _folder("HUMMING_DATA") or platformdirs.user_data_path("humming")


def database_url(explicit: str | None = None) -> str:
    """`explicit`, else HUMMING_DB, else SQLite in the data folder. A bare path becomes a sqlite
    URL."""
    value = explicit or os.environ.get("HUMMING_DB") or str(data_dir() / DEFAULT_DATABASE)
    if "://" in value:
        return value
    if value == ":memory:":  # no file of that name: the store says that it needs a file
        return f"sqlite:///{value}"
    return f"sqlite:///{_path(value).absolute()}"


def table_name() -> str | None:
    """What serves where no table is named: HUMMING_TABLE, else None for the current generation."""
    return os.environ.get("HUMMING_TABLE") or None


def logs(topic: str) -> bool:
    """Whether HUMMING_LOG, a list of topics with commas between them, names `topic`."""
    return topic in os.environ.get("HUMMING_LOG", "").split(",")


def keeps_ledger() -> bool:
    """Whether serving processes count their calls: yes, unless HUMMING_LEDGER is 0."""
    return os.environ.get("HUMMING_LEDGER", "") != "0"


def tables_dir(database: str | None = None) -> Path:
    """Folder of the tuned tables of a database, its alone.

    `tables` in the data folder for the default database, `<file>.tables` beside another SQLite
    file, and for a server a folder of the data folder's that is named by the URL without its
    password.
    """
    url = database_url(database)
    if not url.startswith("sqlite:///"):
        return data_dir() / "tables" / _without_password(url)
    file = Path(url.removeprefix("sqlite:///"))
    if file == (data_dir() / DEFAULT_DATABASE).absolute():
        return data_dir() / "tables"
    return file.with_name(f"{file.name}.tables")


def _without_password(url: str) -> str:
    """A file name that tells databases apart and no secrets."""
    try:
        parts = urlsplit(url)
        place = f"{parts.username or ''}@{parts.hostname or ''}:{parts.port or ''}{parts.path}"
    except ValueError:
        place = url.rpartition("@")[2]
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def _folder(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return _path(value) if value else None


def _path(value: str) -> Path:
    """`value` with ~ replaced; the ~ of an unknown user stays a name like any other."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return Path(value)
