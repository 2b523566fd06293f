"""The commands export, import, merge, diff, prune and table, as the user types them."""

import gzip
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import select, update

from humming.dispatch.heuristics import heuristic
from humming.dispatch.sources import load_table
from humming.dispatch.tables import read_table
from humming.jit.identity import here, serving_device
from humming.settings import tables_dir
from humming.spec.problem import Problem
from tests.tuner.test_cli import call, expect_one_sentence  # noqa: F401  (fixtures)
from tuner.commands.moving import moment
from tuner.store import schema
from tuner.store.moving.plain import read_rows
from tuner.store.open import open_store
from tuner.store.records import MeasurementDraft
from tuner.store.tables import publish

LAYER = Problem("int4g128", n=64, k=256, m=1)


def fill(path, us=5.0, m=1, **changes):
    """A trial and a promotion of one layer in the database at `path`."""
    device = serving_device()
    identity, config = here(device), heuristic(LAYER, device)
    changed = {name: changes.get(name, getattr(identity, name)) for name in ("driver",)}
    identity = type(identity)(**{**vars_of(identity), **changed})
    draft = MeasurementDraft(
        identity=identity, problem=LAYER.at(m), config=config, outcome="ok", us=us, samples=(us,)
    )
    with open_store(str(path)) as store:
        store.finish(None, draft)
        winner = store.promote(identity, LAYER.at(m), config, us=us, heuristic_us=6.0)
        publish(store, tables_dir(str(path)))
    return winner


def vars_of(identity):
    return {name: getattr(identity, name) for name in identity.__dataclass_fields__}


def answer(call, *words):  # noqa: F811
    code, out, err = call(*words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_export_and_import_move_all_evidence_and_serve_by_it(call, tmp_path):  # noqa: F811
    winner = fill(tmp_path / "there.db")
    out = tmp_path / "e.jsonl.gz"
    told = answer(call, "export", "--out", out, "--db", tmp_path / "there.db")
    assert told == {"out": str(out), "kind": "evidence", "rows": 6}
    told = answer(call, "import", out)
    assert sum(told["sources"][0]["added"].values()) == 6 and told["sources"][0]["known"] == 0
    assert load_table().origins.keys() == {winner.id} and told["table"] == str(load_table().path)
    again = answer(call, "import", out)
    assert again["sources"][0] == {"source": str(out), "added": {}, "known": 6}
    assert again["table"] == told["table"]
    code, text, _ = call("import", out)
    assert code == 0 and "added nothing; 6 rows were here already" in text
    unpacked = tmp_path / "e.jsonl"
    unpacked.write_bytes(gzip.decompress(out.read_bytes()))
    assert answer(call, "import", unpacked)["sources"][0]["known"] == 6
    unpacked.write_bytes(unpacked.read_bytes()[:-90])
    expect_one_sentence(call("import", unpacked), "bundle", "e.jsonl")


def test_a_file_of_another_kind_is_told_so(call, tmp_path):  # noqa: F811
    for name, content in (("passwd", b"root:x:0:0\n"), ("garbage.db", b"\0\1\2"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        for command in ("import", "merge"):
            said = call(command, tmp_path / name)
            expect_one_sentence(said, name, "neither a bundle, an exported table nor a database")
    fill(tmp_path / "there.db")
    expect_one_sentence(call("import", tmp_path / "there.db"), "humming-tune merge")


def test_an_exported_table_serves_as_it_stands_and_imports(call, tmp_path):  # noqa: F811
    winner = fill(tmp_path / "there.db")
    out = tmp_path / "table.json"
    told = answer(call, "export", "--table", "--out", out, "--db", tmp_path / "there.db")
    assert told["kind"] == "table" and told["entries"] == 1
    body = json.loads(out.read_text())
    assert body["schema"] == 2 and len(body["checksum"]) == 32
    assert body["provenance"][winner.id] == {
        "host": winner.evidence["host"],
        "promoted_at": winner.promoted_at.isoformat(),
    }
    assert load_table(out).id == told["id"]
    told = answer(call, "import", out)
    assert told["sources"][0]["added"]["winners"] == 1
    with open_store(str(tmp_path / "tuning.db")) as store:
        assert store.winners() == [winner]
    out.write_text(out.read_text().replace('"us": 5.0', '"us": 4.0'))
    expect_one_sentence(call("import", out), "checksum")


def test_a_table_without_rows_and_files_of_other_kinds_are_refused(call, tmp_path):  # noqa: F811
    fill(tmp_path / "there.db")
    plain = load_table(tmp_path / "there.db").path
    expect_one_sentence(call("import", plain), "export --table")
    expect_one_sentence(call("import", tmp_path / "absent"), "cannot be read")
    (tmp_path / "text").write_text("no bundle")
    expect_one_sentence(call("merge", tmp_path / "text"), "neither a bundle")
    expect_one_sentence(call("import"), "got none")
    expect_one_sentence(call("merge"), "got none")
    expect_one_sentence(call("export"), "--out")
    expect_one_sentence(call("export", "--table", "--t4", "--out", "x"), "one thing")
    assert not (tmp_path / "tuning.db").exists() or answer(call, "table", "list") == {
        "generations": []
    }


def test_an_export_that_cannot_be_written_or_holds_nothing(call, tmp_path):  # noqa: F811
    fill(tmp_path / "tuning.db")
    for kind in ((), ("--table",), ("--t4",)):
        place = tmp_path / "tuning.db" / "x"
        expect_one_sentence(call("export", *kind, "--out", place), "--out", str(place))
    os.mkfifo(tmp_path / "pipe")
    for kind in ((), ("--table",)):
        for place in (".", "/", "", tmp_path, tmp_path / "pipe"):
            expect_one_sentence(call("export", *kind, "--out", place), "--out", "but got")
    assert (tmp_path / "pipe").is_fifo()
    assert call("db", "upgrade", "--db", tmp_path / "empty.db")[0] == 0
    words = ("--out", tmp_path / "t.json", "--db", tmp_path / "empty.db")
    expect_one_sentence(call("export", "--table", *words), "holds nothing")
    expect_one_sentence(
        call("export", "--out", tmp_path / "x", "--db", tmp_path / "no.db"), "no.db"
    )


def test_merge_takes_databases_and_files_in_any_order(call, tmp_path):  # noqa: F811
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    fill(a), fill(b, us=4.0), fill(b, m=16)
    answer(call, "export", "--out", tmp_path / "b.gz", "--db", b)
    one = answer(call, "merge", a, b, "--db", tmp_path / "one.db")
    two = answer(call, "merge", tmp_path / "b.gz", a, "--db", tmp_path / "two.db")
    assert Path(one["table"]).name == Path(two["table"]).name
    (entry,) = read_table(one["table"]).entries
    assert [(i.m, i.us) for i in entry.intervals] == [(1, 4.0), (16, 5.0)]  # promoted last


def test_merge_takes_all_sources_or_none(call, tmp_path):  # noqa: F811
    fill(tmp_path / "good.db")
    answer(call, "export", "--out", tmp_path / "good.gz", "--db", tmp_path / "good.db")
    (tmp_path / "bad.gz").write_bytes((tmp_path / "good.gz").read_bytes()[:-40])
    into = tmp_path / "tuning.db"
    for kind in ("gz", "db"):
        for bad in ("bad.gz", "absent.gz", "absent.db"):
            expect_one_sentence(
                call("merge", tmp_path / f"good.{kind}", tmp_path / bad), str(tmp_path / bad)
            )
    with open_store(str(tmp_path / "good.db")) as store:
        store.connections.write(lambda c: c.execute(update(schema.measurements).values(us=1.0)))
    expect_one_sentence(call("merge", tmp_path / "good.gz", tmp_path / "good.db"), "differ")
    expect_one_sentence(call("import", tmp_path / "bad.gz"), "bad.gz")
    assert not into.exists()
    fill(into, m=16)
    before, table = state(into), load_table()
    expect_one_sentence(call("merge", tmp_path / "good.gz", tmp_path / "bad.gz"), "bad.gz")
    assert state(into) == before and load_table() == table


def state(path):
    with open_store(str(path)) as store:
        return store.connections.read(lambda c: list(read_rows(c)))


def test_diff_of_databases_drivers_and_dates(call, tmp_path):  # noqa: F811
    a, b = tmp_path / "a.db", tmp_path / "b.db"
    fill(a, us=8.0), fill(b, us=4.0), fill(b, m=16)
    report = answer(call, "diff", a, b)
    assert report["counts"] == {"only right": 1, "same": 1} and report["median_ratio"] == 0.5
    assert [row["state"] for row in report["problems"]] == ["same", "only right"]
    assert report["problems"][0]["left"]["host"]
    code, text, _ = call("diff", a, b)
    assert code == 0 and "1 only right, 1 same" in text
    fill(a, us=2.0, driver="590.1")
    driver = here(serving_device()).driver
    report = answer(call, "diff", "--drivers", f"{driver or '0'},590.1", "--db", a)
    assert report["problems"][0]["right"]["us"] == 2.0
    report = answer(call, "diff", "--dates", "2d,0d", "--db", a)
    assert report["counts"] == {"only right": 1}
    for words in ((), (a,), (a, b, "--dates", "1d,2d"), ("--dates", "1d"), ("--dates", "x,y")):
        expect_one_sentence(call("diff", *words))
    expect_one_sentence(call("diff", a, tmp_path / "absent.db"), "absent.db")


def _a_hundred_days_older(connection):
    """All generations and what names them."""
    for table, column in (
        (schema.generations, "created_at"),
        (schema.generation_names, "named_at"),
    ):
        for id, time in connection.execute(select(table.c.id, table.c[column])).all():
            older = {column: time - timedelta(days=100)}
            connection.execute(update(table).where(table.c.id == id).values(older))


def test_prune_forgets_what_is_old_and_of_no_use(call, tmp_path):  # noqa: F811
    path = tmp_path / "tuning.db"
    fill(path, us=9.0, m=16)
    first = load_table().id
    latest = [fill(path, us=9.0, m=16), fill(path)]
    with open_store(str(path)) as store:
        store.connections.write(_a_hundred_days_older)
    expect_one_sentence(call("prune"), "--before")
    expect_one_sentence(call("prune", "--before", "soon"), "90d")
    expect_one_sentence(call("prune", "--before", "9000-01-01"), "to come")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HUMMING_TABLE", f"@{first}")
        told = answer(call, "prune", "--before", "90d", "--dry-run")
        assert told["deleted"] == {"generation_names": 1, "generations": 1}
    told = answer(call, "prune", "--before", "90d", "--dry-run")
    assert told["deleted"] == {"generation_names": 2, "generations": 2}
    table = load_table()
    told = answer(call, "prune", "--before", "0d", "--dry-run")
    assert told["deleted"]["winners"] == 1 and load_table() == table
    told = answer(call, "prune", "--before", "0d")
    assert told["deleted"]["winners"] == 1 and "measurements" not in told["deleted"]
    with open_store(str(path)) as store:
        assert [w.id for w in store.winners()] == [w.id for w in latest]
        names = {one.id: one.names for one in store.generations.list()}
    assert names == {table.id: ("current",)} and load_table() == table
    assert not (tables_dir() / f"{first}.json").exists()


def test_a_moment_is_an_age_or_a_date():
    assert moment("2026-11-01") == datetime(2026, 11, 1, tzinfo=timezone.utc)
    assert abs(datetime.now(timezone.utc) - moment("36h") - timedelta(hours=36)).seconds < 9
    assert moment("2026-11-01T12:00+05:30:15") == datetime(
        2026, 11, 1, 6, 29, 45, tzinfo=timezone.utc
    )
    odd = ("20261201", "90", "1e9", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "0h")
    for text in ("", "d", "-3d", "99999999999d", "99999999999h", "2026-13-01", "soon", *odd):
        with pytest.raises(Exception, match="write"):
            moment(text)


def test_generations_are_listed_named_and_stepped_through(call, tmp_path):  # noqa: F811
    path = tmp_path / "tuning.db"
    assert call("table", "list")[0] == 2
    fill(path, us=9.0)
    first = answer(call, "table", "name", "prod")
    fill(path, us=4.0)
    second = answer(call, "table", "name", "prod", "current")
    listed = answer(call, "table", "list")["generations"]
    assert [(g["id"], g["names"]) for g in listed] == [
        (first["id"], []),
        (second["id"], ["current", "prod"]),
    ]
    assert load_table("@prod").id == second["id"]
    assert answer(call, "table", "back", "prod")["id"] == first["id"] == load_table("@prod").id
    assert load_table().id == second["id"]
    expect_one_sentence(call("table", "back", "prod"), "names the first")
    assert answer(call, "table", "forward", "prod")["id"] == second["id"]
    assert answer(call, "table", "name", "old", first["id"][:6])["id"] == first["id"]
    code, text, _ = call("table", "list")
    assert code == 0 and text.count("\n") == 2 and "current, prod" in text
    for words in (("name",), ("name", "UP"), ("name", "prod", "zzzz"), ("name", "prod", "")):
        expect_one_sentence(call("table", *words))
