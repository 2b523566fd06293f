"""How a table is found: by file, folder, database URL, entry point, or in the data folder."""

import os

import pytest

from humming.dispatch.sources import load_table, locate
from humming.dispatch.tables import write_generation
from humming.errors import TableError
from humming.settings import tables_dir


def test_nothing_tuned_is_no_table(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    assert load_table() is None
    assert not (tmp_path / "data").exists()


def test_the_data_folder_a_database_a_folder_and_a_file_name_one_table(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    table = write_generation([], tmp_path / "tables")
    assert load_table() == table
    assert load_table(table) is table
    for name in (
        f"sqlite:///{tmp_path}/humming.db",
        tmp_path / "humming.db",
        tmp_path / "tables",
        table.path,
        str(table.path),
    ):
        assert load_table(name) == table


def test_the_database_variable_decides(tmp_path, monkeypatch):
    table = write_generation([], tmp_path / "elsewhere" / "fleet.db.tables")
    monkeypatch.setenv("HUMMING_DB", f"sqlite:///{tmp_path}/elsewhere/fleet.db")
    assert load_table() == table


def test_an_unchanged_file_is_read_once_and_a_changed_one_again(tmp_path):
    table = write_generation([], tmp_path)
    first = load_table(table.path)
    assert load_table(table.path) is first
    os.utime(table.path, (1, 1))
    assert load_table(table.path) is not first
    table.path.write_text("{}")
    with pytest.raises(TableError, match="cannot be used"):
        load_table(table.path)


def test_a_missing_file_says_so(tmp_path):
    with pytest.raises(TableError, match=r"absent\.json' cannot be read"):
        load_table(tmp_path / "absent.json")


@pytest.mark.parametrize("name", ["typo.db", "", "sqlite:////no/such/place/x.db"])
def test_a_named_place_without_tables_says_so(tmp_path, name):
    with pytest.raises(TableError, match="a named table must exist"):
        load_table(name if "://" in name else tmp_path / name)


def test_two_databases_of_one_folder_keep_their_own_tables(tmp_path):
    write_generation([], tmp_path / "x.db.tables")
    assert load_table(tmp_path / "x.db") is not None
    with pytest.raises(TableError):
        load_table(tmp_path / "y.db")


def test_the_last_table_serves_while_the_server_is_away(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    url = "postgresql://someone:secret@127.0.0.1:1/fleet"
    table = write_generation([], tables_dir(url))
    assert "secret" not in str(tables_dir(url))
    with pytest.warns(RuntimeWarning, match="its last table serves"):
        assert load_table(url) == table
    assert tables_dir(url) == tables_dir(url.replace("secret", "other"))
    assert tables_dir(url) != tables_dir(url.replace("fleet", "other"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://t@/humming?host=/sock/a", "postgresql://t@/humming?host=/sock/b"),
        ("postgresql://h/db", "postgresql://h:5433/db"),
        ("postgresql://h/db", "postgresql://h/db?port=5433"),
        ("postgresql://h/db", "postgresql://h/db?dbname=other"),
        ("postgresql:///?service=a", "postgresql:///?service=b"),
        ("postgresql://h/db", "postgresql://h/db?hostaddr=10.0.0.2"),
        ("postgresql://u:a?b=c@h/db", "postgresql://u:a?b=c@i/db"),
        ("postgresql://h/db", "postgresql://h/db?options=-csearch_path%3Dteam"),
        ("postgresql://[::1]:5433/db", "postgresql://[::1]:5434/db"),
    ],
)
def test_two_servers_never_share_a_folder(one, other):
    assert tables_dir(one) != tables_dir(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://h/db", "postgresql://h:5432/db"),
        ("postgresql://u:secret@H/db", "postgres://other@h/db"),
        ("postgresql://h/db", "postgresql:///db?host=h&port=5432&sslmode=require"),
        ("postgresql://h:5433/db", "postgresql:///db?host=h:5433&connect_timeout=3"),
        ("postgresql://h/db", "postgresql://h/?dbname=db&password=secret"),
    ],
)
def test_one_server_has_one_folder_whoever_asks(one, other):
    assert tables_dir(one) == tables_dir(other)


def test_what_the_url_leaves_out_is_taken_from_the_environment(monkeypatch):
    bare = "postgresql:///db"
    monkeypatch.setenv("PGHOST", "a")
    assert tables_dir(bare) == tables_dir("postgresql://a/db")
    monkeypatch.setenv("PGHOST", "b")
    assert tables_dir(bare) == tables_dir("postgresql://b/db")


def test_an_unknown_database_never_shows_its_password():
    with pytest.raises(Exception) as error:
        locate("postgresql://user:secret@127.0.0.1:1/nothing")
    assert "secret" not in str(error.value)
