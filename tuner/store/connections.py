"""Engines and transactions for both databases: pragmas, patience with locks, and StoreErrors
without chains.

A unit of work is one function of a connection, run in one transaction, and safe to run again. No
tables, no queries here.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from humming.errors import StoreAwayError, StoreError
from humming.spec.canonical import canonical_json
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import sqlite_files
from tuner.store.address import Address

T = TypeVar("T")

BUSY_S = 30.0
"""How long one SQLite statement waits for a lock before the transaction starts anew."""
HASTE_S = 0.5
"""How long in all a locked SQLite file is waited for by who is not patient."""
PATIENCE_S = {"sqlite": 120.0, "postgresql": 30.0}
"""How long a unit of work is tried again: on a locked SQLite file, or while a PostgreSQL server
restarts.
"""
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S = 20, 300
"""How long a PostgreSQL statement waits for another session's lock, and how long it takes."""
SILENCE_S = 20
"""How long a PostgreSQL server may leave bytes unanswered before the connection counts as lost."""

_DANGLING_TRIES = 6
"""How often a unit of work is tried whose rows refer to one that went while it ran."""


class PrunedError(StoreError):
    """Rows that refer to one that is gone: written by an earlier transaction, forgotten since."""


class Connections:
    """The read engine and the write engine of one database. `write=False` never changes or creates
    a file. Without `patient` a SQLite file that is locked is given up soon.
    """

    def __init__(
        self, address: Address, *, create: bool = False, write: bool = True, patient: bool = True
    ) -> None:
        self.address = address
        self.writable = write
        self._pid = os.getpid()
        self._connected = False
        self._patience_s = PATIENCE_S[address.kind] if patient else HASTE_S
        if address.kind == "sqlite":
            assert address.path is not None
            mode = ("rwc" if create else "rw") if write else sqlite_files.read_mode(address.path)
            busy_s = None if patient else HASTE_S
            self._reader = _sqlite_engine(address, mode, "BEGIN", busy_s=busy_s)
            self._writer = _sqlite_engine(address, mode, "BEGIN IMMEDIATE", busy_s=busy_s)
        else:
            self._reader = self._writer = _postgres_engine(address)

    @property
    def server(self) -> Connections:
        """The database itself, whatever stands in for it while it is away."""
        return self

    def read(self, work: Callable[[Connection], T]) -> T:
        """`work` in one transaction that only reads, a single snapshot on SQLite."""
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """`work` in one write transaction; it may run more than once, but commits once. Raises
        StoreError.
        """
        if not self.writable:
            raise StoreError(f"{self.address.shown} was opened for reading only")
        return self._run(self._writer, work)

    def migrate(self, work: Callable[[Connection], T]) -> T:
        """`work` in one write transaction with foreign keys unchecked, as tables may be rebuilt in
        it.
        """
        if self.address.kind == "postgresql":
            return self.write(work)
        engine = _sqlite_engine(self.address, "rwc", "BEGIN IMMEDIATE", foreign_keys=False)
        try:
            return self._run(engine, work)
        finally:
            engine.dispose()

    def keep_at_hand(self, identity: Identity, problem: Problem) -> None:
        """Prepares for an outage, where something stands in for the database then."""

    def close(self) -> None:
        """Gives every connection back; the object can be used again."""
        self._reader.dispose()
        self._writer.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        if os.getpid() != self._pid:
            # A forked child must not speak on its parent's connections, nor close them.
            self._pid = os.getpid()
            for inherited in (self._reader, self._writer):
                inherited.dispose(close=False)
        give_up = time.monotonic() + self._patience_s
        pause, tries = 0.005, 0
        while True:
            tries += 1
            # The StoreError is raised outside `except`, so that no driver error hangs on it as
            # context.
            try:
                with engine.begin() as connection:
                    self._connected = True
                    _limit_time(connection)
                    return work(connection)
            except (SQLAlchemyError, OverflowError) as error:
                failure = explain(error, self.address)
                again = self._transient(error, tries) and time.monotonic() + pause < give_up
            if not again:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _transient(self, error: Exception, tries: int) -> bool:
        if _dangling(error):  # who prunes took away what this transaction had found
            return self.address.kind == "postgresql" and tries < _DANGLING_TRIES
        if not isinstance(error, OperationalError):
            return isinstance(error, DBAPIError) and error.connection_invalidated
        if self.address.kind == "sqlite":
            return "locked" in str(error.orig)
        return self._connected


def _limit_time(connection: Connection) -> None:
    """Neither another session's lock nor a stuck server holds a transaction for good. Of this
    transaction alone, as poolers hand sessions on.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'; "
            f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'"
        )


def now(connection: Connection) -> datetime:
    """The database's clock, UTC: on PostgreSQL the server's, so that hosts with other
    clocks agree.
    """
    if connection.dialect.name == "postgresql":
        value: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        return value.astimezone(timezone.utc)
    return datetime.now(timezone.utc)


def use_wal(connections: Connections) -> None:
    """Puts a SQLite file into WAL mode, which it then keeps. Raises StoreError where the file
    system cannot.
    """
    path = connections.address.path
    if path is None:
        return

    def switch() -> str:
        # Outside any transaction, where SQLite wants it; so not by way of an engine.
        connection = sqlite_files.connect(path, "rwc", BUSY_S)
        try:
            return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])
        finally:
            connection.close()

    mode = patiently(switch, connections.address)
    if mode != "wal":
        raise StoreError(f"{path} lies where SQLite's WAL mode does not work; use a local disk")


def patiently(work: Callable[[], T], address: Address) -> T:
    """`work`, tried again while SQLite says that the file is locked. Raises StoreError."""
    give_up = time.monotonic() + PATIENCE_S["sqlite"]
    while True:
        try:
            return work()
        except sqlite3.Error as error:
            failure = StoreError(_explain_sqlite(str(error), address))
            again = "locked" in str(error) and time.monotonic() < give_up
        if not again:
            raise failure
        time.sleep(0.02)


def _dangling(error: Exception) -> bool:
    """Whether a row referred to one that is not there, or one went that a row refers to."""
    return isinstance(error, IntegrityError) and "foreign key" in str(error.orig).lower()


def explain(error: Exception, address: Address) -> StoreError:
    """One sentence for the user, without SQL, parameters or secrets."""
    if _dangling(error):
        return PrunedError(
            f"{address.shown} lost rows to humming-tune prune while others were written that refer "
            "to them; run the command again"
        )
    orig = getattr(error, "orig", None) or error
    lines = str(orig).strip().splitlines() or [type(orig).__name__]
    if address.kind == "sqlite":
        return StoreError(_explain_sqlite(lines[0], address))
    name = type(orig).__name__
    said = address.scrub(lines[0])
    if name == "InsufficientPrivilege":
        return StoreError(_ungranted(getattr(error, "statement", None) or "", said, address))
    if name == "ReadOnlySqlTransaction":
        return StoreError(
            f"{address.shown} may not be changed, as it or this role's sessions are read-only "
            f"({said}); name the primary server, or a role that writes"
        )
    if name in ("LockNotAvailable", "QueryCanceled"):
        return StoreError(
            f"{address.shown} is kept busy by another session ({said}); end that session, or try "
            "again"
        )
    if isinstance(error, OperationalError):
        kind = StoreError if _refused(said) else StoreAwayError
        return kind(
            f"cannot reach {address.shown} ({said}); check host, user, password and database"
        )
    return StoreError(f"{address.shown} refused a statement ({said})")


def _ungranted(statement: str, said: str, address: Address) -> str:
    """What the role was kept from, and what gives it that right."""
    asked = address.url.query.get("user") if address.url else None
    role = str(asked or (address.url.username if address.url else None) or "ROLE")
    role = role if re.fullmatch("[a-z_][a-z0-9_]*|ROLE", role) else f'"{role}"'
    verb, _, rest = statement.partition(" ")
    if verb == "SELECT" and "FOR UPDATE" not in rest:
        may, rights = "may not be read by this role", "SELECT"
    elif verb in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        may = "may not be changed by this role, and evidence was to be written"
        rights = "SELECT, INSERT, UPDATE, DELETE"
    else:
        return (
            f"{address.shown} may not be changed by this role, and its tables were to be brought "
            f"to this version ({said}); run humming-tune db upgrade as the role that owns them"
        )
    grant = f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO {role}"
    return f"{address.shown} {may}; name a role that may, or run as the tables' owner: {grant}"


def _refused(said: str) -> bool:
    """Whether the server itself turned the connection down, for who asks or what for; not where it
    starts, recovers or shuts down.
    """
    passing = ("the database system is", "terminating connection", "too many", "remaining conn")
    return "FATAL:" in said and not any(word in said for word in passing)


_SQLITE_SAYS = {
    "unable to open": "cannot be opened; check that its folder can be written, or name another "
    "with --db",
    "not a database": "is not a SQLite database; name another file with --db",
    "malformed": "is damaged; move it away, or restore a copy",
    "readonly": "cannot be written; check its permissions, or name another with --db",
    "is full": "cannot grow, as the disk is full; free some space",
    "locked": "is kept locked by another process; end that process, or name another with --db",
}


def _explain_sqlite(said: str, address: Address) -> str:
    for sign, sentence in _SQLITE_SAYS.items():
        if sign in said:
            return f"{address.shown} {sentence}"
    return f"{address.shown} cannot be used ({said})"


def _sqlite_engine(
    address: Address,
    mode: str,
    begin: str,
    *,
    foreign_keys: bool = True,
    busy_s: float | None = None,
) -> Engine:
    path = address.path
    assert path is not None

    def connect() -> sqlite3.Connection:
        connection = sqlite_files.connect(path, mode, BUSY_S if busy_s is None else busy_s)
        connection.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        # FULL: a candidate that takes the whole machine down must still be found in in_flight
        # afterwards.
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    engine = create_engine(
        "sqlite+pysqlite://",
        creator=connect,
        poolclass=QueuePool,
        json_serializer=canonical_json,
    )
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _postgres_engine(address: Address) -> Engine:
    assert address.url is not None
    # No prepared statements: they break behind poolers that hand a session from client to client.
    arguments: dict[str, Any] = {
        "prepare_threshold": None,
        "fallback_application_name": "humming-tune",
    }
    # A link that broke without a word, as by a firewall, must not hold a transaction for hours.
    usual: dict[str, int] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "keepalives_idle": SILENCE_S,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 1000 * SILENCE_S,
    }
    arguments.update({n: v for n, v in usual.items() if n not in address.url.query})
    try:
        return create_engine(
            address.url,
            connect_args=arguments,
            pool_pre_ping=True,
            pool_size=2,
            json_serializer=canonical_json,
            hide_parameters=True,
        )
    except ImportError:
        pass
    raise StoreError(
        "a postgresql:// URL needs the package psycopg; run pip install 'humming-tune[postgres]'"
    )
