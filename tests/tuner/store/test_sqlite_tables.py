"""Tables of a SQLite file: what its folder says is believed as far as the file says the same, which
is asked without SQLAlchemy."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from store_samples import CONFIG, HERE, OTHER, PROBLEM

from humming.dispatch.sources import load_table, locate
from humming.errors import TableError
from humming.settings import tables_dir
from tuner.store import sqlite_files
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import publish, resolve


def promote(store: Store, config: object = CONFIG) -> None:
    store.promote(HERE, PROBLEM, config, us=2.0, heuristic_us=3.0)  # type: ignore[arg-type]


def served(name: str | None = None) -> str | None:
    table = load_table(name)
    return None if table is None else table.id


def answer_of_a_new_process(name: str) -> tuple[str, bool]:
    """What serves there, and whether SQLAlchemy was imported for that."""
    code = (
        "import sys; from humming.dispatch.sources import load_table; "
        f"print(load_table({name!r}).id, 'sqlalchemy' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    id, imported = done.stdout.split()
    return id, imported == "True"


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str, str]:
    """A SQLite database without its folder of tables: the file, its current generation, `prod`."""
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    first, copy = tmp_path / "d" / "x.db", tmp_path / "cp" / "x.db"
    copy.parent.mkdir()
    with open_store(str(first)) as store:
        ids = []
        for config in (CONFIG, OTHER):
            promote(store, config)
            made = publish(store, tables_dir(str(first)))
            assert made is not None
            ids.append(made.id)
        store.generations.name("prod", ids[0])
    shutil.copy(first, copy)
    monkeypatch.setenv("HUMMING_DB", str(copy))
    return copy, ids[1], ids[0]


def test_a_copied_file_brings_its_tables_along(copied: tuple[Path, str, str]) -> None:
    file, current, prod = copied
    assert served() == served(str(file)) == current
    assert served("@prod") == served(f"@{prod}") == prod
    assert locate() == tables_dir() / f"{current}.json"
    shutil.rmtree(tables_dir())
    assert served() == current and served("@prod") == prod


def test_a_folder_older_than_its_restored_database_is_brought_up(
    copied: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, current, prod = copied
    assert served() == current
    (tables_dir() / "current").write_text(f"{prod}\n")
    assert served() == current
    asked: list[str] = []
    monkeypatch.setattr("tuner.store.tables.resolve", lambda url, _: asked.append(url))
    assert served() == current and not asked  # once for each state of the file


def test_a_folder_that_cannot_be_written_is_stood_in_for(
    copied: tuple[Path, str, str], tmp_path: Path
) -> None:
    _, current, _ = copied
    tables_dir().write_text("no folder")
    path = locate()
    assert path is not None and path.is_relative_to(tmp_path / "data") and served() == current


def test_a_database_that_cannot_be_asked_warns_and_stops_nothing(
    copied: tuple[Path, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, current, _ = copied
    monkeypatch.setattr("tuner.store.connections.HASTE_S", 0.05)
    holder = sqlite3.connect(file)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.warns(RuntimeWarning, match="kept locked.*none of its tables serves"):
        assert load_table() is None
    with pytest.raises(TableError, match="kept locked"):
        load_table(str(file))
    holder.close()
    file.touch()
    assert served() == current
    shutil.rmtree(tables_dir())
    file.write_bytes(b"garbage, and no database")
    with pytest.warns(RuntimeWarning, match="not a SQLite database"):
        assert load_table() is None
    file.unlink()
    assert load_table() is None


def test_a_process_that_finds_its_table_imports_no_sqlalchemy(
    copied: tuple[Path, str, str],
) -> None:
    file, current, prod = copied
    assert answer_of_a_new_process(str(file)) == (current, True)  # fetched
    assert answer_of_a_new_process(str(file)) == (current, False)
    assert answer_of_a_new_process("@prod") == (prod, True)
    assert answer_of_a_new_process("@prod") == (prod, False)
    (tables_dir() / "current").write_text(f"{prod}\n")
    assert answer_of_a_new_process(str(file)) == (current, True)


def test_a_damaged_table_is_fetched_anew(copied: tuple[Path, str, str]) -> None:
    file, current, _ = copied
    path = tables_dir() / f"{current}.json"
    assert served() == current
    path.write_text("{}")
    file.touch()
    assert served() == current
    path.unlink()
    assert served() == current


def test_a_name_says_the_same_by_either_road(copied: tuple[Path, str, str]) -> None:
    file, current, prod = copied
    with open_store(str(file)) as store:

        def both() -> set[str | None]:
            return {sqlite_files.named(file, "prod"), store.generations.named("prod")}

        assert both() == {prod} and sqlite_files.named(file, "absent") is None
        store.generations.name("prod", current)
        assert both() == {current}
        store.generations.step("prod", -1)
        assert both() == {prod}
        assert resolve(f"sqlite:///{file}", "prod") == tables_dir() / f"{prod}.json"


def test_what_is_no_database_of_ours_says_nothing_at_once(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    assert sqlite_files.named(file, "current") is None and not file.exists()
    for content in (b"", b"garbage, and no database"):
        file.write_bytes(content)
        assert sqlite_files.named(file, "current") is None
    file.unlink()
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE generation_names (name)")
    other.close()
    assert sqlite_files.named(file, "current") is None
