"""Tuning goes on while the database server is away: into a SQLite journal of this machine, merged
into the server's database when it is back.

The journal holds the same tables, so the same verbs run on either. What was known before an outage
is kept at hand in it, by `keep_at_hand`. Generations of tables are never journaled: the last one
serves meanwhile. Statements are journal.py; how rows are merged is moving/merging.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, delete, select, text

from humming.errors import StoreAwayError, StoreError
from humming.settings import data_dir, tables_dir
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import evidence, journal, migrate
from tuner.store.address import Address, parse
from tuner.store.connections import Connections, now
from tuner.store.moving.merging import copy_rows
from tuner.store.open import open_store
from tuner.store.schema import in_flight, measurements, settled, winners
from tuner.store.store import Store

T = TypeVar("T")
RETRY_S = 15.0
"""How often a server that is away is asked whether it is back."""


class Failover(Connections):
    """The connections of a server, and the journal in their place while it does not answer."""

    def __init__(self, address: Address, file: Path, note: Callable[[str], None]) -> None:
        super().__init__(address)
        self._server = Connections(address)
        self._local = Connections(parse(str(file)), create=True)
        self._note = note
        self._retry_at: float | None = None
        self._lock = threading.RLock()

    @property
    def server(self) -> Connections:
        """The server alone."""
        return self._server

    @property
    def away(self) -> bool:
        """Whether the journal stood in for the server at the last verb."""
        return self._retry_at is not None

    def read(self, work: Callable[[Connection], T]) -> T:
        """As that of Connections, on the server or else on the journal."""
        if self._present():
            try:
                return self._server.read(work)
            except StoreAwayError as error:
                self.leave(error)
        return self._local.read(work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """As that of Connections, on the server or else on the journal."""
        if self._present():
            try:
                return self._server.write(work)
            except StoreAwayError as error:
                self.leave(error)

        def marked(connection: Connection) -> T:
            # Inside the transaction, so that whoever merges has seen it, or comes before it.
            self._marker.touch()
            return work(connection)

        return self._local.write(marked)

    def close(self) -> None:
        """Merges what the server can take now, then gives every connection back."""
        with suppress(StoreError):
            if self.away:
                self._retry_at = time.monotonic()
                self._present()
        for connections in (self._server, self._local):
            connections.close()
        super().close()

    def leave(self, error: StoreAwayError) -> None:
        """The server is away from now on."""
        with self._lock:
            if self._retry_at is None:
                self._note(f"{error}; tuning goes on into {self._local.address.shown}")
            self._retry_at = time.monotonic() + RETRY_S

    def merge(self) -> None:
        """Moves what the journal holds of an outage into the server's database. Several processes
        may share a journal: one of them merges, the others wait for its transaction."""
        if not self._marker.exists():
            return
        self._local.write(lambda c: journal.drop_known(c, self._server))

        def move(connection: Connection) -> None:
            if not self._marker.exists():
                return  # another process was faster
            copy_rows(self._local, self._server)
            trials = list(connection.execute(select(measurements.c.id)).scalars())
            launches = connection.execute(select(in_flight)).all()
            clock = now(connection)
            lost = [dict(row._mapping) for row in launches if evidence.orphan(row, clock)]
            self._server.write(lambda c: journal.settle_launches(c, trials, lost))
            journal.forget(connection, in_flight, [*trials, *(row["id"] for row in lost)])
            for table in (measurements, settled, winners):
                connection.execute(delete(table))
            self._marker.unlink(missing_ok=True)

        self._local.write(move)
        self._note(f"merged {self._local.address.shown} into {self.address.shown}")

    def keep_at_hand(self, identity: Identity, problem: Problem) -> None:
        """Copies into the journal what tuning `problem` will ask for: its evidence, and what is
        settled and serves on `identity`."""
        if not self.away:
            try:
                found = self._server.read(lambda c: journal.known_of(c, identity, problem))
            except StoreAwayError as error:
                self.leave(error)
                return
            self._local.write(lambda c: journal.insert(c, found))

    def _present(self) -> bool:
        """Whether the server can be asked. One that was away is tried anew now and then, and given
        what the journal holds."""
        with self._lock:
            if self._retry_at is None:
                return True
            if time.monotonic() < self._retry_at:
                return False
            try:
                self._knock()
                self.merge()
            except StoreAwayError:
                self._retry_at = time.monotonic() + RETRY_S
                return False
            except StoreError as error:  # what it holds stays there, for the user to look at
                self._note(f"{self._local.address.shown} was not merged: {error}")
            self._retry_at = None
            return True

    def _knock(self) -> None:
        """Raises StoreAwayError at once where the server does not answer."""
        fresh = Connections(self.address)
        try:
            fresh.read(lambda c: c.execute(text("SELECT 1")).close())
        finally:
            fresh.close()

    @property
    def _marker(self) -> Path:
        """A file that stands beside the journal for as long as it holds what the server lacks."""
        path = self._local.address.path
        assert path is not None
        return path.with_name(f"{path.name}.unmerged")


def open_for_tuning(url: str, note: Callable[[str], None]) -> Store:
    """As open_store; a server may leave meanwhile, or be away already where it was used from this
    machine before. What an earlier run left in the journal is merged first. `note` tells the user.
    """
    address, file = parse(url), journal_of(url)
    away: StoreAwayError | None = None
    try:
        store = open_store(url)
    except StoreAwayError as error:
        if address.kind == "sqlite" or not file.exists():
            raise
        away = error
    else:
        if address.kind == "sqlite":
            return store
        store.close()
    migrate.upgrade(f"sqlite:///{file}")
    connections = Failover(address, file, note)
    if away is not None:
        connections.leave(away)
        return Store(connections)
    try:
        connections.merge()
    except StoreError as error:
        note(f"{file} was not merged: {error}")
    return Store(connections)


def journal_of(url: str) -> Path:
    """The journal of this machine for the database at `url`."""
    return data_dir() / "journals" / f"{tables_dir(url).name}.db"
