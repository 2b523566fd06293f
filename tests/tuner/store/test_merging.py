"""Laws of the union of evidence, and what it refuses. The rows themselves are test_bundle.py."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import update
from store_samples import CONFIG, GPU, HERE, OTHER, PROBLEM, draft, identity

from humming.errors import StoreError
from tuner.store.moving.merging import copy_rows, export, merge, merge_file
from tuner.store.moving.plain import read_rows
from tuner.store.open import open_store
from tuner.store.schema import measurements
from tuner.store.store import Store

THERE = identity(GPU, driver="580.65.06", compiler="nvrtc", compiler_version="13.0.88")
PROBLEMS = (PROBLEM, PROBLEM.at(16), replace(PROBLEM, n=2048))


def _promote(store: Store, who: int, what: int, which: int) -> None:
    store.promote(
        (HERE, THERE)[who],
        PROBLEMS[what],
        (CONFIG, OTHER)[which],
        us=10.0 + which,
        heuristic_us=12.5,
        evidence={"serves": [1, 20000]},
    )


def _trial(store: Store, who: int, what: int, which: int) -> None:
    fields = {"identity": (HERE, THERE)[who], "problem": PROBLEMS[what]}
    store.finish(None, draft(config=(CONFIG, OTHER)[which], **fields))


def _settle(store: Store, who: int, what: int, which: int) -> None:
    store.settle((HERE, THERE)[who], PROBLEMS[what], ("rule", "budget")[which], which)


Step = tuple[Callable[[Store, int, int, int], None], int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([_promote, _trial, _settle]),
        st.integers(0, 1),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    max_size=5,
)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with our schema and no rows."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    open_store(str(path)).close()
    return path


@pytest.fixture
def fresh(empty: Path, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Makes a database in which some steps were taken."""
    made: list[Store] = []

    def fresh(*steps: Step) -> Store:
        path = tmp_path / f"{len(made)}.db"
        shutil.copy(empty, path)
        made.append(open_store(str(path), upgrade=False))
        for step, *how in steps:
            step(made[-1], *how)
        return made[-1]

    yield fresh
    for store in made:
        store.close()


def state(store: Store) -> list[object]:
    """All that moves."""
    return store.connections.read(lambda c: list(read_rows(c)))


def union(into: Store, *sources: Store) -> Store:
    for source in sources:
        copy_rows(source.connections, into.connections)
    return into


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS, STEPS, STEPS)
def test_merging_is_commutative_associative_and_idempotent(
    fresh: Callable[..., Store], one: list[Step], two: list[Step], three: list[Step]
) -> None:
    a, b, c = fresh(*one), fresh(*two), fresh(*three)
    ab = union(fresh(), a, b)
    assert state(ab) == state(union(fresh(), b, a))
    assert state(union(fresh(), ab, c)) == state(union(fresh(), a, union(fresh(), b, c)))
    before = state(ab)
    assert state(union(ab, ab, a)) == before
    assert state(union(fresh(), a)) == state(a)
    assert union(fresh(), b, a).winners() == ab.winners()


def test_a_server_and_a_file_hold_the_same_union(
    fresh: Callable[..., Store], postgres_url: str
) -> None:
    a = fresh((_promote, 0, 0, 0), (_trial, 1, 1, 1), (_settle, 1, 2, 0))
    b = fresh((_promote, 0, 0, 1), (_promote, 1, 2, 1), (_trial, 0, 0, 0))
    with open_store(postgres_url) as server:
        assert state(union(server, a, b)) == state(union(fresh(), b, a))
        assert state(union(fresh(), server)) == state(server)
        latest = max(server.winners(HERE), key=lambda winner: winner.promoted_at)
        assert latest.config == OTHER  # the one promoted last, on whatever host


def test_what_is_a_databases_own_does_not_move(fresh: Callable[..., Store]) -> None:
    a, b = fresh((_promote, 0, 0, 0)), fresh()
    a.begin(HERE, PROBLEM, CONFIG)
    a.generations.add("a" * 32, 0, b"{}", "prod")
    union(b, a)
    assert b.generations.list() == [] and b.suspects(HERE) == {}
    assert b.winners() == a.winners()


def test_two_trials_of_one_id_that_differ_are_refused_and_nothing_changes(
    fresh: Callable[..., Store], tmp_path: Path
) -> None:
    a = fresh((_trial, 0, 0, 0))
    b = union(fresh((_promote, 1, 1, 1)), a)
    a.connections.write(lambda c: c.execute(update(measurements).values(us=1.0)).close())
    _promote(a, 0, 2, 0)
    before = state(b)
    with pytest.raises(StoreError, match="must be the same, but differ"):
        union(b, a)
    assert state(b) == before


@pytest.mark.parametrize("between", [0, 3])
def test_a_source_that_contradicts_itself_is_refused_and_the_genuine_one_taken(
    fresh: Callable[..., Store], between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("_BATCH", "_ROWS_A_TRANSACTION"):
        monkeypatch.setattr(f"tuner.store.moving.merging.{limit}", 1)
    a, b = fresh(*[(_trial, 0, 0, 0)] * (1 + between)), fresh((_promote, 0, 0, 0))
    genuine = [(str(n), v) for n, v in a.connections.read(lambda c: list(read_rows(c)))]
    name, trial = next(row for row in genuine if row[0] == "measurements")
    before = state(b)
    with pytest.raises(StoreError, match="must be the same, but differ"):
        merge(b.connections, lambda: iter([*genuine, (name, {**trial, "us": 0.5})]))
    assert state(b) == before
    twice = [*genuine, (name, trial)]
    assert merge(b.connections, lambda: iter(twice)).added["measurements"] == 1 + between


def test_a_bundle_says_how_much_was_new(fresh: Callable[..., Store], tmp_path: Path) -> None:
    a, b = fresh((_promote, 0, 0, 0), (_trial, 0, 0, 1)), fresh((_trial, 0, 0, 0))
    rows = export(a.connections, tmp_path / "a.jsonl.gz")
    merged = merge_file(b.connections, tmp_path / "a.jsonl.gz")
    assert +merged.added == {"configs": 1, "winners": 1, "measurements": 1}
    assert rows == merged.added.total() + merged.known.total() == 8 - 1
