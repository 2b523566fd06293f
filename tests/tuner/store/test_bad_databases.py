"""Databases that cannot be used: each is one StoreError sentence, without secrets, and loses
nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from store_samples import CONFIG, HERE, PROBLEM, draft

from humming.errors import StoreError
from tuner.store import migrate
from tuner.store.address import parse
from tuner.store.connections import Connections
from tuner.store.open import open_store

SECRET = "hush:hush"
QUOTED = "hush%3Ahush"


def _sentence(url: str, **options: Any) -> str:
    """The message of opening `url`; checks that it is one line, and that no error hangs on it."""
    with pytest.raises(StoreError) as caught:
        open_store(url, **options)
    error = caught.value
    assert error.__cause__ is None and error.__context__ is None
    told = "".join(traceback.format_exception(error)) + repr(error)
    # The test's own call stands in the traceback; its argument does not.
    assert SECRET not in told and QUOTED not in told
    assert "\n" not in str(error) and error.exit_code == 2
    return str(error)


def test_a_folder(tmp_path: Path) -> None:
    assert f"{tmp_path} is a folder" in _sentence(f"sqlite:///{tmp_path}")


def test_a_path_below_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert "cannot be made" in _sentence(f"sqlite:///{file / 'sub' / 'x.db'}")
    assert file.read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="/proc is Linux's")
def test_a_folder_where_nobody_can_make_files() -> None:
    assert "/proc/x.db cannot be opened" in _sentence("sqlite:////proc/x.db")
    assert "/proc/x/y.db cannot be made" in _sentence("/proc/x/y.db")


def test_names_that_are_odd_but_good(tmp_path: Path) -> None:
    for name in ("100%.db", "a?b#c.db", "x\udcff.db", "é 雨.db"):
        with open_store(f"sqlite:///{tmp_path / name}") as store:
            store.begin(HERE, PROBLEM, CONFIG)
        assert (tmp_path / name).is_file()


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    assert "cannot be made or read" in _sentence(str(tmp_path / ("x" * 300)))


def test_a_device_file() -> None:
    assert "no regular file" in _sentence("/dev/null")


@pytest.mark.parametrize("size", [10, 5000])
def test_a_file_of_something_else(tmp_path: Path, size: int) -> None:
    file = tmp_path / "garbage.db"
    file.write_bytes(b"garbage!" * size)
    before = file.read_bytes()
    assert "is not a SQLite database" in _sentence(str(file))
    assert "is not a SQLite database" in _sentence(str(file), write=False)
    assert file.read_bytes() == before


def test_a_damaged_database(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    with open_store(str(file)) as store:
        store.finish(None, draft())
    data = file.read_bytes()
    file.write_bytes(data[:100] + os.urandom(len(data) - 100))
    assert str(file) in _sentence(str(file))


def test_a_database_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "photos.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE photos (id)")
    assert "belongs to another program (its tables: photos)" in _sentence(str(file))
    with sqlite3.connect(file) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("photos",)]


def test_tables_of_another_program_with_our_names(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as other:
        other.execute("CREATE TABLE devices (id int)")
    assert "belongs to another program" in _sentence(postgres_url)


def test_a_newer_revision_is_left_alone(url: str) -> None:
    with open_store(url) as store:
        store.finish(None, draft())
    connections = Connections(parse(url))
    connections.write(lambda c: c.execute(text("UPDATE alembic_version SET version_num='9999'")))
    for options in ({}, {"upgrade": False}, {"write": False}):
        said = _sentence(url, **options)
        assert "revision 9999, made by a newer humming-tune" in said and "upgrade" in said
    with pytest.raises(StoreError, match="newer humming-tune"):
        migrate.upgrade(url)
    rows = text("SELECT count(*) FROM measurements")
    assert connections.read(lambda c: c.execute(rows).scalar()) == 1


def test_an_empty_database_that_may_not_be_upgraded(url: str) -> None:
    migrate.make_place(parse(url))
    assert "no tables yet; run humming-tune db upgrade" in _sentence(url, upgrade=False)


def test_a_missing_file_that_may_not_be_made(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "x.db"
    assert "there is no database" in _sentence(str(file), create=False)
    assert "there is no database" in _sentence(str(file), write=False)
    assert not file.parent.exists()


@pytest.fixture
def locked_folder() -> Iterator[Path]:
    """A filled database x.db that only its owner may write, where every user can reach it."""
    folder = Path(tempfile.mkdtemp(prefix="humming-ro-"))
    with open_store(str(folder / "x.db")) as store:
        store.settle(HERE, PROBLEM, "rule", 3)
    (folder / "x.db").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _as_nobody(answer: Any, work: Callable[[], str]) -> None:
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        answer.send(work())
    except StoreError as error:
        answer.send(f"StoreError: {error}")


def _ask_as_nobody(work: Callable[[], str]) -> str:
    """What `work` returns in a process without root's rights, which no permission bits
    would stop.
    """
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    child = fork.Process(target=_as_nobody, args=(theirs, work))
    child.start()
    theirs.close()
    said = str(ours.recv())
    child.join()
    return said


def test_a_read_only_file_is_refused_before_tuning(locked_folder: Path) -> None:
    file = str(locked_folder / "x.db")
    said = _ask_as_nobody(lambda: open_store(file).shown)
    assert said.startswith(f"StoreError: {file} cannot be ")
    (locked_folder).chmod(0o777)
    said = _ask_as_nobody(lambda: open_store(file).shown)
    assert said.startswith(f"StoreError: {file} cannot be written")


def test_a_read_only_file_in_a_read_only_folder_can_be_read(locked_folder: Path) -> None:
    file = str(locked_folder / "x.db")
    said = _ask_as_nobody(lambda: str(len(open_store(file, write=False).settled(HERE))))
    assert said == "1"


def test_a_role_that_may_only_read(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        store.settle(HERE, PROBLEM, "rule", 3)
    with psycopg.connect(postgres_url) as server:
        server.execute("DROP ROLE IF EXISTS reader")
        server.execute("CREATE ROLE reader LOGIN")
        server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    theirs = postgres_url.replace("postgres:@", f"reader:{QUOTED}@")
    try:
        said = _sentence(theirs)
        assert "may not be changed by this role, and evidence was to be written" in said
        grant = said.partition("owner: ")[2]
        assert grant.startswith("GRANT ") and grant.endswith(" TO reader")
        with open_store(theirs, write=False) as store:
            assert len(store.settled(HERE)) == 1
        with psycopg.connect(postgres_url) as server:
            server.execute(grant)
        open_store(theirs).close()
        with psycopg.connect(postgres_url) as server:
            server.execute("REVOKE ALL ON settled FROM reader")
        unread = pytest.raises(StoreError, match=r"may not be read.* GRANT SELECT ON ALL TABLES")
        with open_store(theirs, write=False) as store, unread:
            store.settled(HERE)
    finally:
        with psycopg.connect(postgres_url) as server:
            server.execute("DROP OWNED BY reader")
            server.execute("DROP ROLE reader")


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = _sentence(f"postgresql://me:{QUOTED}@127.0.0.1:{port}/tuning")
    assert f"cannot reach postgresql://me@127.0.0.1:{port}/tuning" in said


def test_someone_listens_but_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://me@127.0.0.1:{port}/tuning?connect_timeout=2&password={QUOTED}"
        assert "cannot reach postgresql://me@127.0.0.1" in _sentence(url)


def test_a_server_is_given_five_seconds(postgres_url: str) -> None:
    engine = Connections(parse(postgres_url))._reader
    with engine.connect() as connection:
        driver = connection.connection.dbapi_connection
    assert isinstance(driver, psycopg.Connection)
    assert driver.info.get_parameters()["connect_timeout"] == "5"


def test_a_database_that_the_server_lacks(postgres_url: str) -> None:
    url = postgres_url.replace("/humming_", f":{QUOTED}@/nowhere_").replace(":@:", ":")
    assert "nowhere_" in _sentence(url)


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    said = _sentence(f"postgresql://me:{QUOTED}@host/tuning")
    assert "pip install 'humming-tune[postgres]'" in said


def test_a_writer_that_waits_for_a_lock_says_who_holds_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.store.connections.BUSY_S", 0.05)
    monkeypatch.setitem(Connections.__init__.__globals__["PATIENCE_S"], "sqlite", 0.2)
    with open_store(sqlite_url) as store:
        other = sqlite3.connect(parse(sqlite_url).path or "", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="kept locked by another process"):
            store.begin(HERE, PROBLEM, CONFIG)
        assert store.measurements(HERE) == []
        other.execute("ROLLBACK")
        store.begin(HERE, PROBLEM, CONFIG)
