"""Where things are kept: cache, data, database, tables; read when asked, never at import. Makes no
folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


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
    value = explicit or os.environ.get("HUMMING_DB") or str(data_dir() / "humming.db")
    return value if "://" in value else f"sqlite:///{_path(value).absolute()}"


def tables_dir(database: str | None = None) -> Path:
    """Folder of tuned tables: beside an SQLite database, else in the data folder."""
    url = database_url(database)
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///")).parent / "tables"
    return data_dir() / "tables"


def _folder(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return _path(value) if value else None


def _path(value: str) -> Path:
    """`value` with ~ replaced; the ~ of an unknown user stays a name like any other."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return Path(value)
