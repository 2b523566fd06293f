"""URLs: what they name, what they must not show, and what is no database. Opening is
test_bad_databases.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from humming.errors import StoreError
from tuner.store.address import parse

SECRET = "hush:hush"
QUOTED = "hush%3Ahush"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://me:{SECRET}@ss@host/x", "percent-encoding"),
        (f"postgresql://me:{SECRET}@host:port/x", "percent-encoding"),
        (f"mysql://me:{SECRET}@host/x", "sqlite:/// or postgresql://"),
        (f"postgre://me:{SECRET}@host/x", "did you mean 'postgres'"),
        ("sqlite://", "needs a file"),
        ("sqlite:///", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite://folder/x.db", "sqlite:/// and a path"),
        ("", "needs a file"),
        ("sqlite:///q.db?mode=ro", r"path alone, but got '\?mode=ro'; leave that away"),
        ("q.db?mode=ro&cache=shared", "path alone"),
        ("sqlite:///file:q.db?uri=true", "path alone"),
        ("sqlite:///file:q.db", "leave file: away"),
    ],
)
def test_a_url_that_names_no_database(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        parse(url)
    assert "hush" not in str(caught.value) and "ss@host" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgres_url_is_shown_without_its_secrets(scheme: str) -> None:
    url = f"{scheme}://me:{QUOTED}@db.example:5433/tuning?sslmode=require&sslpassword=quiet"
    address = parse(url)
    assert address.shown == "postgresql://me@db.example:5433/tuning"
    assert "hush" not in repr(address) and "quiet" not in repr(address)
    assert address.scrub(f"no entry for {SECRET}, quiet") == "no entry for ***, ***"
    assert address.url is not None and address.url.drivername == "postgresql+psycopg"
    assert address.url.query["sslmode"] == "require"


def test_a_socket_folder_stands_for_the_host() -> None:
    assert parse("postgresql://me@/x?host=/run/pg").shown == "postgresql://me@/run/pg/x"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_a_sqlite_path_is_taken_as_it_stands(name: str) -> None:
    assume(not re.search(r"\?\w+=[^/]*$", name))
    path = f"/folder/{name}"
    assert parse(f"sqlite:///{path}").path == Path(path)


def test_a_bare_path_and_a_home_folder() -> None:
    assert parse("x.db").path == Path("x.db")
    assert parse("~/x.db").path == Path.home() / "x.db"
    assert parse("~nobody-of-that-name/x.db").path == Path("~nobody-of-that-name/x.db")


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_store_error(text: str) -> None:
    for prefix in ("", "sqlite:///", "postgresql://", "postgresql://u:p@"):
        try:
            assert parse(prefix + text).shown
        except StoreError as error:
            assert str(error)
