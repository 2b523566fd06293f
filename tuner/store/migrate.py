"""Schema revisions: what a database has, and bringing it to ours under a lock. The steps are
alembic/versions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, inspect, text

from humming.errors import StoreError
from tuner.store.address import Address, parse
from tuner.store.connections import Connections, use_wal
from tuner.store.disks import require_local
from tuner.store.schema import REVISION, metadata

if TYPE_CHECKING:
    from alembic.config import Config

_ADVISORY_LOCK = 0x68756D6D696E67
"""Key of the PostgreSQL advisory lock that all who migrate take: "humming" in ASCII."""
# Alembic's context is a module-level global: two threads must not migrate at once.
_alembic = threading.Lock()


def upgrade(url: str) -> str:
    """Brings the database at `url` to this package's revision, creating it if need be, and answers
    that revision.

    Safe to call from several processes at once. Raises StoreError.
    """
    address = parse(url)
    make_place(address)
    connections = Connections(address, create=True)
    try:
        bring_up(connections)
    finally:
        connections.close()
    return REVISION


def revision(url: str, *, patient: bool = True) -> str | None:
    """The revision of the database at `url`; None where it has no tables yet, or a SQLite file is
    missing. `patient` as in Connections.
    """
    address = parse(url)
    if address.path is not None and not address.path.exists():
        return None
    make_place(address)
    connections = Connections(address, write=False, patient=patient)
    try:
        return current(connections)
    finally:
        connections.close()


def current(connections: Connections) -> str | None:
    """The revision written in the database, None for an empty one. Raises StoreError where it
    belongs to something else.
    """

    def look(connection: Connection) -> str | None:
        tables = set(inspect(connection).get_table_names())
        if "alembic_version" in tables:
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
            return None if found is None else str(found)
        ours = connections.address.kind == "sqlite" or tables & metadata.tables.keys()
        if tables and ours:
            raise StoreError(
                f"{connections.address.shown} belongs to another program (its tables: "
                f"{', '.join(sorted(tables)[:4])}); name another database with --db"
            )
        return None

    return connections.read(look)


def bring_up(connections: Connections) -> None:
    """Upgrades to REVISION in one transaction. Raises StoreError on a revision that this package
    does not know.
    """
    if connections.address.kind == "sqlite":
        use_wal(connections)
    found = current(connections)
    if found != REVISION:
        check_known(found, connections.address)
        in_alembic(connections, lambda config, command: command.upgrade(config, REVISION))


def check_known(found: str | None, address: Address) -> None:
    """Raises StoreError unless `found` is None or a revision that this package has."""
    from alembic.script import ScriptDirectory

    known = [script.revision for script in ScriptDirectory(str(scripts())).walk_revisions()]
    if found is not None and found not in known:
        raise StoreError(
            f"{address.shown} has revision {found}, made by a newer humming-tune "
            f"(this one knows {REVISION}); upgrade the package"
        )


def in_alembic(connections: Connections, work: Callable[[Config, Any], None]) -> None:
    """Runs `work(config, alembic.command)` on one locked transaction: all of it happens, or
    nothing.
    """
    from alembic.config import Config

    from alembic import command

    def migrate(connection: Connection) -> None:
        if connections.address.kind == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = '60s'"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = Config()
        config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
        config.attributes["connection"] = connection
        work(config, command)

    with _alembic:
        connections.migrate(migrate)


def scripts() -> Path:
    """The folder of env.py and versions/: beside this file in a wheel, at the root of a source
    tree.
    """
    here = Path(__file__).resolve().parent
    for folder in (here / "alembic", here.parents[1] / "alembic"):
        if (folder / "env.py").is_file():
            return folder
    raise StoreError(f"the migration scripts are missing beside {here}; install humming-tune anew")


def make_place(address: Address, *, create: bool = True) -> None:
    """Makes the folder of a SQLite file, and says what cannot be a database file, or lies on a
    network disk. Raises StoreError.
    """
    path = address.path
    if path is None:
        return
    require_local(path)
    failure: StoreError | None = None
    try:
        if path.is_dir():
            failure = StoreError(f"{path} is a folder, not a database; name a file in it with --db")
        elif path.exists() and not path.is_file():
            failure = StoreError(f"{path} is no regular file; name another with --db")
        elif not path.exists() and not create:
            failure = StoreError(
                f"there is no database {path}; run humming-tune, or name it with --db"
            )
        elif create:
            path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        failure = StoreError(
            f"the folder of {path} cannot be made or read ({error.strerror}); "
            "name another with --db"
        )
    if failure is not None:
        raise failure
