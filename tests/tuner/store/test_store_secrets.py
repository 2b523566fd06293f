"""What reaches the server and what reaches nobody: SSL and other parameters pass through, secrets
stand in no message, log or repr; a role that can only read serves."""

from __future__ import annotations

import logging
import socket
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from store_samples import CONFIG, HERE, PROBLEM

from humming.dispatch.sources import load_table
from humming.errors import StoreAwayError, StoreError
from tuner.store.address import parse
from tuner.store.connections import Connections
from tuner.store.open import open_store
from tuner.store.tables import publish

SECRET, QUOTED, QUIET = "hush:hush", "hush%3Ahush", "quiet!"


@pytest.fixture
def half_a_server() -> Iterator[tuple[int, list[bytes]]]:
    """A port whose server takes the first message of each client, refuses SSL, and hangs up."""
    heard: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                heard.append(client.recv(4096))
                client.sendall(b"N")

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1], heard
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def _refused(url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open_store(url)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert not any(secret in told for secret in (SECRET, QUOTED, QUIET))
    return caught.value


def test_parameters_of_ssl_pass_through(half_a_server: tuple[int, list[bytes]]) -> None:
    port, heard = half_a_server
    at = f"postgresql://me:{QUOTED}@127.0.0.1:{port}/tuning"
    said = _refused(f"{at}?sslmode=require&sslpassword={QUIET}")
    assert "SSL was required" in str(said)
    assert heard and heard[0][4:8] == bytes.fromhex("04d2162f")  # libpq's request for SSL
    said = _refused(f"{at}?sslmode=verify-full&sslrootcert=/nowhere/ca.pem")
    assert "SSL was required" in str(said) or "/nowhere/ca.pem" in str(said)
    assert b"user\0me\0" in _first_words(port, heard, f"{at}?sslmode=disable&gssencmode=disable")


def _first_words(port: int, heard: list[bytes], url: str) -> bytes:
    heard.clear()
    _refused(url)
    return heard[0]


def test_nothing_of_a_secret_is_logged(
    postgres_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    theirs = postgres_url.replace("postgres:@", f"postgres:{QUOTED}@")
    assert QUOTED in theirs
    with caplog.at_level(logging.DEBUG):
        for name in ("sqlalchemy.engine", "sqlalchemy.pool", "psycopg", "alembic"):
            logging.getLogger(name).setLevel(logging.DEBUG)
        try:
            with open_store(theirs) as store:
                store.settle(HERE, PROBLEM, "rule", 3)
                assert SECRET not in repr(store) + repr(vars(store._connections))
            _refused(f"postgresql://me:{QUOTED}@127.0.0.1:9/x?sslpassword={QUIET}")
        finally:
            for name in ("sqlalchemy.engine", "sqlalchemy.pool", "psycopg", "alembic"):
                logging.getLogger(name).setLevel(logging.NOTSET)
    said = caplog.text + "".join(capfd.readouterr())
    assert "INSERT INTO settled" in said
    assert not any(secret in said for secret in (SECRET, QUOTED, QUIET))


def test_silence_is_bounded_unless_the_url_says_otherwise(postgres_url: str) -> None:
    with Connections(parse(f"{postgres_url}&keepalives_idle=7"))._reader.connect() as connection:
        driver = connection.connection.dbapi_connection
        assert isinstance(driver, psycopg.Connection)
        asked = driver.info.get_parameters()
    assert asked["keepalives_idle"] == "7" and asked["tcp_user_timeout"] == "20000"


def test_a_role_that_can_only_read_serves(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(postgres_url) as store:
        store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
        publish(store, tmp_path / "writer")
    with psycopg.connect(postgres_url) as server:
        server.execute("DROP ROLE IF EXISTS serving")
        server.execute("CREATE ROLE serving LOGIN")
        server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO serving")
    theirs = postgres_url.replace("postgres:@", "serving:@")
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "reader"))
    try:
        table = load_table(theirs)
        assert table is not None and table.entries[0].intervals[0].config == CONFIG
        with pytest.raises(StoreError, match="may not be changed by this role"):
            open_store(theirs)
    finally:
        with psycopg.connect(postgres_url) as server:
            server.execute("DROP OWNED BY serving")
            server.execute("DROP ROLE serving")


def test_a_server_that_is_away_and_one_that_says_no(postgres_url: str) -> None:
    assert isinstance(_refused("postgresql://me@127.0.0.1:9/x"), StoreAwayError)
    unknown = _refused(postgres_url.replace("postgres:@", "nobody:@"))
    assert not isinstance(unknown, StoreAwayError) and "nobody" in str(unknown)
