"""open_store: from a URL to a Store whose schema is ours. The only place where both meet."""

from __future__ import annotations

from sqlalchemy import delete, false

from humming.errors import StoreError
from tuner.store import migrate
from tuner.store.address import parse
from tuner.store.connections import Connections
from tuner.store.schema import REVISION, in_flight
from tuner.store.store import Store


def open_store(
    url: str,
    *,
    create: bool = True,
    upgrade: bool = True,
    write: bool = True,
    patient: bool = True,
) -> Store:
    """Opens the database at `url`: `sqlite:///PATH`, a bare path, or
    `postgresql://user:password@host/database`.

    `create` makes a missing SQLite file and its folders; `upgrade` brings an empty or older schema
    to this package's. `write=False` opens a database for its reading verbs alone and changes
    nothing, whatever the other two say; `patient` is as in Connections. Raises
    StoreError, in one sentence without secrets, on anything that stands in the way.
    """
    address = parse(url)
    migrate.make_place(address, create=create and write)
    connections = Connections(address, create=create, write=write, patient=patient)
    try:
        if write and upgrade:
            migrate.bring_up(connections)
        found = migrate.current(connections)
        if found != REVISION:
            migrate.check_known(found, address)
            state = f"the older revision {found}" if found else "no tables yet"
            raise StoreError(f"{address.shown} has {state}; run humming-tune db upgrade")
        if write:
            # Touches no row, but asks for the right to: who may not write learns it before tuning.
            connections.write(lambda c: c.execute(delete(in_flight).where(false())).close())
    except BaseException:
        connections.close()
        raise
    return Store(connections)
