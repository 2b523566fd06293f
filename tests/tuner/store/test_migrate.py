"""Revisions on both databases: the schema is what the steps make, with rows present, with many at
once, from a wheel.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, inspect
from store_samples import CONFIG, HERE, PROBLEM, draft

from alembic import command
from tuner.store import migrate
from tuner.store.address import parse
from tuner.store.connections import Connections
from tuner.store.open import open_store
from tuner.store.schema import REVISION, ledger, metadata

ROOT = Path(__file__).parents[3]


def _connections(url: str) -> Connections:
    return Connections(parse(url))


def _fill(url: str) -> None:
    with open_store(url) as store:
        store.begin(HERE, PROBLEM, CONFIG)
        store.finish(None, draft())
        store.settle(HERE, PROBLEM, "budget", 1)
        store.promote(HERE, PROBLEM, CONFIG, us=1.0, heuristic_us=2.0)
        store.lease(HERE, [PROBLEM], 60)
        store.generations.add("a" * 32, 0, b"{}", "current")
        time = store.clock()
        row = {"process": "here:1", "calls": 3, "misses": 1, "since": time, "until": time}
        keys = {"id": "b" * 32, "identity_id": HERE.id, "problem_id": PROBLEM.id}
        store.connections.write(lambda c: c.execute(insert(ledger).values(**keys, **row)))


def _difference(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection), metadata))


def test_the_steps_make_the_schema_that_the_code_describes(url: str) -> None:
    assert migrate.upgrade(url) == REVISION
    assert _connections(url).read(_difference) == []


def test_the_steps_make_the_same_checks_and_keys(url: str) -> None:
    migrate.upgrade(url)

    def names(connection: Connection) -> dict[str, set[str | None]]:
        look = inspect(connection)
        return {
            table: {
                *(check["name"] for check in look.get_check_constraints(table)),
                *(key["name"] for key in look.get_foreign_keys(table)),
                look.get_pk_constraint(table)["name"],
            }
            for table in metadata.tables
        }

    migrated = _connections(url).read(names)
    for name, table in metadata.tables.items():
        assert migrated[name] == {str(rule.name) for rule in table.constraints}, name


def test_the_code_names_the_newest_revision() -> None:
    assert ScriptDirectory(str(migrate.scripts())).get_heads() == [REVISION]


def test_revision_says_what_is_there(url: str) -> None:
    assert migrate.revision(url) is None
    migrate.upgrade(url)
    assert migrate.revision(url) == REVISION == migrate.upgrade(url)


def test_an_upgrade_keeps_rows_and_writes_nothing_anew(url: str) -> None:
    _fill(url)
    migrate.upgrade(url)
    with open_store(url) as store:
        assert len(store.measurements(HERE)) == len(store.winners()) == 1
        assert PROBLEM.id in store.settled(HERE)


def test_each_step_down_and_up_again_with_rows_present(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUMMING_DB", url)
    developer = Config(str(ROOT / "alembic.ini"))
    for script in ScriptDirectory(str(migrate.scripts())).walk_revisions():
        _fill(url)
        command.downgrade(developer, str(script.down_revision or "base"))
        assert migrate.revision(url) == script.down_revision
        command.upgrade(developer, "head")
        assert _connections(url).read(_difference) == []
    _fill(url)


def test_a_step_that_fails_leaves_nothing_behind(url: str) -> None:
    connections = _connections(url)
    migrate.make_place(connections.address)

    def half(config: Config, alembic_command: Any) -> None:
        alembic_command.upgrade(config, "head")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate.in_alembic(connections, half)
    assert connections.read(lambda c: inspect(c).get_table_names()) == []
    _fill(url)


def _first_use(url: str, barrier: Any) -> None:
    barrier.wait()
    with open_store(url) as store:
        store.finish(None, draft())


def test_many_processes_may_be_the_first(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(4)
    crowd = [spawn.Process(target=_first_use, args=(url, barrier)) for _ in range(4)]
    for process in crowd:
        process.start()
    for process in crowd:
        process.join()
    assert [process.exitcode for process in crowd] == [0] * 4
    with open_store(url) as store:
        assert len(store.measurements(HERE)) == 4
    assert _connections(url).read(_difference) == []


def test_migrating_touches_no_logging(sqlite_url: str) -> None:
    code = (
        "import logging, sys; from tuner.store import migrate; migrate.upgrade(sys.argv[1]);"
        "alembic = logging.getLogger('alembic');"
        "assert not logging.root.handlers and logging.root.level == logging.WARNING;"
        "assert {type(h) for h in alembic.handlers} <= {logging.NullHandler};"
        "assert alembic.getEffectiveLevel() == logging.WARNING and not alembic.disabled"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, sqlite_url], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_installed_package_brings_its_own_steps(sqlite_url: str, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for package in ("humming", "tuner"):
        shutil.copytree(ROOT / package, site / package)
    shutil.copytree(ROOT / "alembic", site / "tuner" / "store" / "alembic")
    code = (
        "import sys; from tuner.store import migrate;"
        "print(migrate.scripts()); print(migrate.upgrade(sys.argv[1]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, sqlite_url],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split("\n")[:2] == [str(site / "tuner/store/alembic"), REVISION], done.stderr
