"""Generations: immutable, by id, named, the same for every host of a database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from store_samples import CONFIG, GPU, HERE, OTHER, PROBLEM, identity

from humming.dispatch.sources import load_table, locate
from humming.dispatch.tables import current_table, read_table
from humming.errors import StoreError, TableError
from humming.settings import tables_dir
from tuner.store import schema
from tuner.store.open import open_store
from tuner.store.store import Store
from tuner.store.tables import publish, resolve


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> Iterator[Path]:
    """This host's data folder, with HUMMING_DB set."""
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HUMMING_DB", url)
    return tmp_path / "data"


def promote(store: Store, config: object = CONFIG, us: float = 2.0) -> None:
    store.promote(HERE, PROBLEM, config, us=us, heuristic_us=3.0)  # type: ignore[arg-type]


def served(name: str | None = None) -> str | None:
    table = load_table(name)
    return None if table is None else table.id


def test_publishing_writes_one_generation_for_the_same_winners(
    store: Store, url: str, data: Path
) -> None:
    assert publish(store, tables_dir(url)) is None
    promote(store)
    one = publish(store, tables_dir(url))
    assert one is not None and publish(store, tables_dir(url)) == one == load_table()
    (kept,) = store.generations.list()
    assert (kept.id, kept.entries, kept.names) == (one.id, 1, ("current",))
    assert one.path is not None and store.generations.content(one.id) == one.path.read_bytes()
    (winner,) = store.winners()
    origin = one.origins[winner.id]
    assert origin.promoted_at == winner.promoted_at.isoformat()
    assert origin.host == winner.evidence["host"] == kept.host


def test_a_name_stays_while_others_publish_and_goes_back_and_forward(
    store: Store, url: str, data: Path
) -> None:
    ids = []
    for us in (3.0, 2.0, 1.0):
        promote(store, us=us)
        made = publish(store, tables_dir(url))
        assert made is not None
        ids.append(made.id)
        store.generations.name("prod", made.id)
    promote(store, OTHER)
    publish(store, tables_dir(url))
    verbs = store.generations
    assert verbs.named("prod") == ids[2] != verbs.named("current")
    assert [verbs.step("prod", -1), verbs.step("prod", -1)] == [ids[1], ids[0]]
    with pytest.raises(StoreError, match="names the first of its 3 generations already"):
        verbs.step("prod", -1)
    assert [verbs.step("prod", 1), verbs.step("prod", 1)] == [ids[1], ids[2]]
    with pytest.raises(StoreError, match="names the last"):
        verbs.step("prod", 1)
    with pytest.raises(StoreError, match="names none"):
        verbs.step("absent", 1)
    with pytest.raises(StoreError, match="is here"):
        verbs.name("prod", "0" * 32)


def test_a_name_has_the_history_of_a_browser(store: Store) -> None:
    verbs = store.generations
    ids = [digit * 32 for digit in "1234"]
    for id in ids:
        verbs.add(id, 0, b"{}", "current")
    for id in ids[:3]:
        verbs.name("prod", id)
    assert verbs.step("prod", -1) == ids[1]
    verbs.name("prod", ids[3])  # drops the third, which was ahead
    with pytest.raises(StoreError, match="names the last of its 3"):
        verbs.step("prod", 1)
    assert verbs.step("prod", -1) == ids[1] and verbs.step("prod", 1) == ids[3]
    verbs.name("prod", ids[2])
    verbs.name("prod", ids[0])
    assert verbs.step("prod", -1) == ids[2] and verbs.step("prod", -1) == ids[3]
    assert [verbs.step("prod", 1), verbs.step("prod", 1)] == [ids[2], ids[0]]


STEPS = st.lists(st.sampled_from(["back", "forward", *"1234"]), max_size=12)


@settings(deadline=None, max_examples=25)
@given(steps=STEPS)
def test_a_browser_agrees_with_any_steps(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    behind: list[str] = []
    ahead: list[str] = []
    with open_store(str(tmp_path_factory.mktemp("steps") / "x.db")) as store:
        for digit in "1234":
            store.generations.add(digit * 32, 0, b"{}", "current")
        for step in steps:
            by = {"back": -1, "forward": 1}.get(step)
            if by is None:
                store.generations.name("prod", step * 32)
                if behind[-1:] != [step]:
                    behind, ahead = [*behind, step], []
            elif (len(behind) > 1) if by < 0 else ahead:
                source, target = (behind, ahead) if by < 0 else (ahead, behind)
                target.append(source.pop())
                assert store.generations.step("prod", by) == behind[-1] * 32
            else:
                with pytest.raises(StoreError):
                    store.generations.step("prod", by)


def test_each_host_gets_the_generation_that_a_name_or_id_names(
    store: Store, url: str, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    promote(store)
    old = publish(store, tables_dir(url))
    assert old is not None
    store.generations.name("prod", old.id)
    promote(store, OTHER)
    new = publish(store, tables_dir(url))
    assert new is not None and load_table() == new
    if url.startswith("postgresql"):  # another host, whose folder is empty
        monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "another"))
    else:
        resolve(url, "prod")  # what `table name` does
    assert served("@prod") == served(f"@{old.id}") == old.id
    assert served() == new.id
    monkeypatch.setenv("HUMMING_TABLE", "@prod")
    assert served() == old.id and served("@current") == new.id
    with pytest.raises(TableError, match=r"has the name 'prd'.*table list.*did you mean 'prod'"):
        load_table("@prd")
    with pytest.raises(TableError, match=r"no generation of .* has the id"):
        load_table("@" + 32 * "0")
    with pytest.raises(TableError, match="a generation's name"):
        load_table("@../../etc/passwd")


def test_an_id_that_is_here_needs_no_server_and_a_name_serves_its_last_table(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    monkeypatch.setenv("HUMMING_DB", postgres_url)
    with open_store(postgres_url) as store:
        promote(store)
        made = publish(store, tables_dir(postgres_url))
        assert made is not None
        store.generations.name("prod", made.id)
    assert load_table("@prod") == made

    def away(*_: object) -> None:
        raise StoreError("cannot reach it")

    monkeypatch.setattr("tuner.store.open.open_store", away)
    assert locate(f"@{made.id}") == made.path
    with pytest.warns(RuntimeWarning, match="its last table serves"):
        assert load_table("@prod") == made


def test_a_database_without_generations_serves_what_its_winners_say(
    store: Store, url: str, data: Path
) -> None:
    assert resolve(url) is None and resolve(url, "prod") is None
    promote(store)
    path = resolve(url)
    assert path is not None and read_table(path) == current_table(tables_dir(url))
    assert store.generations.list() == []


def test_a_damaged_generation_is_refused_in_a_sentence(store: Store, url: str, data: Path) -> None:
    promote(store)
    made = publish(store, tables_dir(url))
    assert made is not None and made.path is not None
    for content in (b"", b"x\x9c damaged", b"\x00" * 40):
        store.connections.write(
            lambda c, content=content: c.execute(  # type: ignore[misc]
                update(schema.generations).values(content=content)
            ).close()
        )
        with pytest.raises(StoreError, match="is damaged"):
            store.generations.content(made.id)
    body = json.loads(made.path.read_text())
    body["entries"] = []
    made.path.write_text(json.dumps(body))
    with pytest.raises(TableError, match="damaged"):
        load_table(f"@{made.id}")


def test_a_role_that_can_only_read_serves(store: Store, url: str, data: Path) -> None:
    store.promote(identity(GPU), PROBLEM, CONFIG, us=1.0, heuristic_us=1.0)
    made = publish(store, tables_dir(url))
    with open_store(url, write=False) as reader:
        assert made is not None and reader.generations.named("current") == made.id
        with pytest.raises(StoreError, match="reading only"):
            reader.generations.name("prod", made.id)
