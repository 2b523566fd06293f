"""The entry point `humming.tables`, by which the runtime asks a database for a tuned table. No SQL
here.
"""

from __future__ import annotations

from pathlib import Path

from humming.dispatch.tables import write_generation
from humming.settings import tables_dir
from tuner.store import migrate
from tuner.store.open import open_store


def resolve(url: str) -> Path | None:
    """The tuned table of the database at `url`, written as a generation file; None where nothing
    is tuned yet. A role that can only read is enough. Raises StoreError.
    """
    if migrate.revision(url) is None:
        return None
    with open_store(url, write=False) as store:
        found = store.table_entries()
    return write_generation(found, tables_dir(url)).path if found else None
