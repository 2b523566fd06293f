"""The bundle file: round trip, damage, and rows that no honest database wrote."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_samples import CONFIG, GPU, HERE, PROBLEM, draft, identity

from humming.errors import StoreError
from humming.spec.canonical import canonical_json, content_hash
from tuner.store.moving.bundle import read_bundle
from tuner.store.moving.merging import export, merge, merge_file
from tuner.store.moving.plain import read_rows
from tuner.store.open import open_store
from tuner.store.store import Store

ABOVE = [HealthCheck.function_scoped_fixture]


def fill(store: Store) -> None:
    store.finish(None, draft(detail="µ \u4e2d 'quoted' \\ \x1b[0m", conditions={"hot": [1, None]}))
    store.finish(None, draft(config=None, kind="torch", us=9.5, samples=(9.5,)))
    store.finish(None, draft(outcome="crashed", identity=identity(GPU)))
    store.settle(HERE, PROBLEM, "rule", 3)
    store.promote(HERE, PROBLEM, CONFIG, us=1.5, heuristic_us=2.5, evidence={"serves": [0, 4]})


def lines(bundle: Path) -> list[bytes]:
    return gzip.decompress(bundle.read_bytes()).splitlines(keepends=True)


def state(store: Store) -> list[Any]:
    return store.connections.read(lambda c: list(read_rows(c)))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A database that holds a promotion of its own, and that nothing here changes."""
    with open_store(str(tmp_path_factory.mktemp("target") / "target.db")) as store:
        store.promote(identity(GPU), PROBLEM, CONFIG, us=3.0, heuristic_us=4.0)
        yield store


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("source")
    with open_store(str(folder / "source.db")) as source:
        fill(source)
        export(source.connections, folder / "a.jsonl.gz")
    return (folder / "a.jsonl.gz").read_bytes()


@pytest.fixture
def bundle(exported: bytes, tmp_path: Path) -> Path:
    (tmp_path / "a.jsonl.gz").write_bytes(exported)
    return tmp_path / "a.jsonl.gz"


def test_export_and_import_are_a_round_trip_on_each_database(
    store: Store, tmp_path: Path, bundle: Path
) -> None:
    fill(store)
    export(store.connections, tmp_path / "one.jsonl.gz")
    with open_store(str(tmp_path / "other.db")) as other:
        merge_file(other.connections, tmp_path / "one.jsonl.gz")
        assert state(other) == state(store)
        assert other.winners() == store.winners()
        assert other.measurements(HERE) == store.measurements(HERE)
        export(other.connections, tmp_path / "two.jsonl.gz")
    one, two = (lines(tmp_path / f"{name}.jsonl.gz") for name in ("one", "two"))
    assert one[1:-1] == two[1:-1] and json.loads(one[-1])["rows"] == len(one) - 2
    head = json.loads(one[0])
    assert head["bundle"] == 1 and head["provenance"]["database"] == store.shown
    merge_file(store.connections, bundle)
    assert len(store.measurements(HERE)) == 4


@settings(max_examples=40, deadline=None, suppress_health_check=ABOVE)
@given(data=st.data())
def test_a_damaged_bundle_changes_nothing(target: Store, bundle: Path, data: st.DataObject) -> None:
    whole, before = bundle.read_bytes(), state(target)
    # gzip's header, its length and the last byte's padding aside, which hold nothing of the bundle
    place = data.draw(st.integers(10, len(whole) - 10))
    if data.draw(st.booleans()):
        hurt = whole[:place]
    else:
        hurt = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))])
        hurt += whole[place + 1 :]
    other = bundle.with_name("hurt.jsonl.gz")
    other.write_bytes(hurt)
    with pytest.raises(StoreError):
        merge_file(target.connections, other)
    assert state(target) == before


def _rewritten(bundle: Path, change: Callable[[str, dict[str, Any]], Any]) -> Path:
    """The bundle with rows changed and a checksum that fits them."""
    held = [json.loads(line) for line in lines(bundle)]
    rows = [change(*row) or row for row in held[1:-1]]
    body = b"".join(canonical_json(line).encode() + b"\n" for line in [held[0], *rows])
    last = {"rows": len(rows), "sha256": hashlib.sha256(body).hexdigest()}
    bundle.write_bytes(gzip.compress(body + canonical_json(last).encode() + b"\n"))
    return bundle


LATE = (datetime.now(timezone.utc) + timedelta(days=30)).isoformat()
HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "another machine's device": ("devices", {"sm_count": 1}),
    "a text for a number": ("devices", {"cache_bytes": "1"}),
    "a number that no database holds": ("devices", {"cache_bytes": 2**63}),
    "a truth for a number": ("devices", {"cache_bytes": True}),
    "a NUL": ("identities", {"driver": "\0"}),
    "another driver under the same id": ("identities", {"driver": "1.0"}),
    "a problem of another layer": ("problems", {"layer_id": "0" * 32}),
    "another shape under the same id": ("problems", {"n": 1}),
    "another config under the same id": ("configs", {"config": {"family": "cpu"}}),
    "a config that is a list": ("configs", {"config": ["family"]}),
    "a time for what failed": ("measurements", {"outcome": "crashed"}),
    "no time at all": ("measurements", {"us": None}),
    "an endless time": ("measurements", {"us": 1e308}),
    "samples of another kind": ("measurements", {"samples": ["1"]}),
    "an outcome that is none": ("measurements", {"outcome": "fine"}),
    "a trial of another nonce": ("measurements", {"nonce": "0" * 32}),
    "conditions that are none": ("measurements", {"conditions": 1}),
    "a reference to nothing": ("settled", {"identity_id": "0" * 32}),
    "a reason that is none": ("settled", {"reason": "because"}),
    "a faster winner under the same id": ("winners", {"us": 0.5}),
    "a column too many": ("winners", {"more": 1}),
    "a time without a zone": ("winners", {"promoted_at": "2026-01-01T00:00:00"}),
    "no time": ("winners", {"promoted_at": "soon"}),
    "a promotion that outranks all to come": ("winners", {"promoted_at": LATE}),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_row_is_refused_in_a_sentence(target: Store, bundle: Path, what: str) -> None:
    table, change = HOSTILE[what]
    before = state(target)
    hostile = _rewritten(
        bundle, lambda name, row: [name, {**row, **change}] if name == table else 0
    )
    with pytest.raises(StoreError) as refused:
        merge_file(target.connections, hostile)
    assert "\n" not in str(refused.value) and table in str(refused.value)
    assert state(target) == before


@pytest.mark.parametrize("serves", [[4, 1], ["x", 2], [10**30, 10**31], 7, [0, 1], {}, [None, 1]])
def test_an_interval_that_no_table_could_hold_is_refused(
    target: Store, bundle: Path, serves: Any
) -> None:
    def change(name: str, row: dict[str, Any]) -> Any:
        if name != "winners":
            return None
        row = {**row, "evidence": {"serves": serves}}
        return [name, {**row, "id": content_hash({n: v for n, v in row.items() if n != "id"})}]

    before = state(target)
    with pytest.raises(StoreError, match="winners"):
        merge_file(target.connections, _rewritten(bundle, change))
    assert state(target) == before


@pytest.mark.parametrize("row", [("leases", {}), ("winners", 1), ({}, {}), (None, None)])
def test_what_is_no_row_is_refused(target: Store, row: tuple[Any, Any]) -> None:
    before = state(target)
    with pytest.raises(StoreError):
        merge(target.connections, lambda: iter([row]))
    assert state(target) == before


def test_what_another_version_wrote_travels_though_it_is_not_read_here(
    bundle: Path, tmp_path: Path
) -> None:
    config = {"family": "of tomorrow", "knob": 1}
    problem: dict[str, Any] = {}

    def change(name: str, row: dict[str, Any]) -> Any:
        if name == "configs":
            return [
                name,
                {"id": content_hash(config), "family": config["family"], "config": config},
            ]
        if name == "problems":
            problem.update({n: v for n, v in row.items() if n not in ("id", "layer_id")})
            problem["format"] = "int99x"
            layer = content_hash({**problem, "m": 0})
            return [name, {"id": content_hash(problem), "layer_id": layer, **problem}]
        return [name, row] if name in ("devices", "identities") else None

    kept = [
        row
        for row in read_bundle(_rewritten(bundle, change))
        if row[0] in ("devices", "identities", "problems", "configs")
    ]
    with open_store(str(tmp_path / "fresh.db")) as store:
        merged = merge(store.connections, lambda: iter(kept))
        assert merged.added["problems"] == merged.added["configs"] == 1
        assert store.winners() == [] and len(state(store)) == len(kept)


NO_BUNDLES = (b"", b"\x1f\x8b", b"no bundle", gzip.compress(b"{}\n", mtime=0))  # named alike


@pytest.mark.parametrize("content", NO_BUNDLES)
def test_files_that_are_no_bundles(target: Store, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(Exception) as refused:
        merge_file(target.connections, tmp_path / "x")
    assert isinstance(refused.value, StoreError) or "cannot be used" in str(refused.value)
    with pytest.raises(StoreError, match="cannot be read"):
        merge_file(target.connections, tmp_path / "absent")


def test_a_bomb_ends_early(target: Store, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb", "wb") as file:
        file.write(b'{"bundle":1}\n')
        for _ in range(40):
            file.write(b"0" * 2**20)
    with pytest.raises(StoreError, match="too long"):
        merge_file(target.connections, tmp_path / "bomb")
