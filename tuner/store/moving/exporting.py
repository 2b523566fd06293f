"""What leaves a database in a form that others read: the serving winners as one table file. Bundles
of all evidence are bundle.py, the community's format is tuner/evidence/t4.py.
"""

from __future__ import annotations

from pathlib import Path

from humming.dispatch.pointers import replace_file
from humming.dispatch.tables import TunedTable, encode, read_table
from humming.errors import StoreError
from tuner.store.entries import entries
from tuner.store.moving.merging import winner_rows
from tuner.store.records import Winner
from tuner.store.store import Store
from tuner.store.tables import origins


def export_table(store: Store, path: Path, winners: list[Winner] | None = None) -> TunedTable:
    """Writes `winners` (None: all that serve) as a table file with their rows: the runtime serves
    from it as it stands, and `import` takes it into a database. Raises StoreError where nothing is
    tuned yet, or `path` cannot be written."""
    found = store.winners() if winners is None else winners
    if not found:
        raise StoreError(
            f"an exported table needs something tuned, but {store.shown} holds nothing; run "
            "humming-tune --model config.json"
        )
    rows = store.connections.read(lambda c: winner_rows(c, [winner.id for winner in found]))
    _, content = encode(entries(found), origins(found), rows)
    try:
        replace_file(path, content)
    except OSError as error:
        raise StoreError(
            f"--out must be a file that can be written, but got '{path}' ({error.strerror})"
        ) from None
    return read_table(path)
