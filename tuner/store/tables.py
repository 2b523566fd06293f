"""The entry point `humming.tables`, by which the runtime asks a database for a tuned table, and the
end of a tuning, which writes one. No SQL here.

SQLAlchemy is imported only where a table must be fetched: a process that serves would wait longer
for that than for all else.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from humming.dispatch.intervals import Origin
from humming.dispatch.pointers import CURRENT, absent, is_id, pointed
from humming.dispatch.sources import load_table
from humming.dispatch.tables import TunedTable, encode, keep_generation
from humming.errors import TableError
from humming.settings import spare_tables_dir, tables_dir
from tuner.store import sqlite_files
from tuner.store.address import parse
from tuner.store.disks import require_local
from tuner.store.entries import entries
from tuner.store.records import Winner

if TYPE_CHECKING:
    from tuner.store.store import Store


def resolve(url: str, generation: str = CURRENT) -> Path | None:
    """The tuned table that `generation`, a name or an id, names in the database at `url`, as a file
    of this machine; None where there is none. A role that can only read is enough.

    Where no generation was written yet, `current` is what the winners say. Waits for no lock, as
    who asks is about to serve. Raises StoreError, or TableError where other generations are there.
    """
    here = _at_hand(url, generation)
    if here is not None:
        return here
    from tuner.store import migrate
    from tuner.store.open import open_store

    if migrate.revision(url, patient=False) is None:
        return None
    with open_store(url, write=False, patient=False) as store:
        name = None if is_id(generation) else generation
        id = generation if name is None else store.generations.named(name)
        content = None if id is None else store.generations.content(id)
        if id is not None and content is not None:
            return _kept(url, id, content, name)
        if generation != CURRENT:
            names = {name for one in store.generations.list() for name in one.names}
            if names:
                raise absent(store.shown, generation, sorted(names))
            return None
        found = store.winners()
    return _kept(url, *encode(entries(found), origins(found)), CURRENT) if found else None


def _at_hand(url: str, name: str) -> Path | None:
    """The sound file of the generation that a SQLite database says `name` names, where a folder of
    its tables says the same; None where the database must be asked for more."""
    file = parse(url).path
    if file is None or is_id(name) or not file.is_file():
        return None
    require_local(file)
    id = sqlite_files.named(file, name)
    for folder in (tables_dir(url), spare_tables_dir(url)):
        try:
            path = pointed(folder, name)
            if path is not None and path.stem == id and load_table(path) is not None:
                return path
        except TableError:  # damaged: it is fetched anew
            continue
    return None


def _kept(url: str, id: str, content: bytes, name: str | None) -> Path | None:
    """The generation as a file beside its database, or in the data folder where a SQLite file lies
    in one that cannot be written."""
    try:
        return keep_generation(id, content, tables_dir(url), name).path
    except TableError:
        if not url.startswith("sqlite:"):
            raise
        return keep_generation(id, content, spare_tables_dir(url), name).path


def fetch(store: Store, id: str, folder: Path, name: str | None) -> Path | None:
    """The generation `id` of the database as a file of `folder`, named `name` there; None where the
    database has none of that id."""
    content = store.generations.content(id)
    return None if content is None else keep_generation(id, content, folder, name).path


def publish(store: Store, folder: Path) -> TunedTable | None:
    """What serves from now on: the winners as a generation, in the database and in `folder`, named
    `current` in both. None where nothing is tuned yet. Every tuning and import ends by it."""

    def keep(found: list[Winner]) -> tuple[TunedTable, bytes]:
        id, content = encode(entries(found), origins(found))
        table = keep_generation(id, content, folder)
        assert table.path is not None
        return table, table.path.read_bytes()

    return store.generations.publish(keep)


def origins(winners: list[Winner]) -> dict[str, Origin]:
    """Record -> where it comes from."""
    return {
        winner.id: Origin(str(winner.evidence.get("host", "")), winner.promoted_at.isoformat())
        for winner in winners
    }
