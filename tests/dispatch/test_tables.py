"""Table files: round trip, damage, hostile JSON, and a writer that never disturbs a reader."""

import json
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.dispatch.tables import (
    Interval,
    TableEntry,
    current_table,
    read_table,
    serve_intervals,
    write_generation,
)
from humming.errors import TableError
from humming.spec.canonical import content_hash
from humming.spec.config import CpuConfig
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem

DEVICE = Device("cpu", "Some CPU", "x86_64", 2**25, isa=("avx2", "fma", "f16c"), threads=4)
CONFIG = CpuConfig("stream", "avx2", 1, 32, 128, 2, 1024, 1)


def entry(n=64, ms=(1, 16), us=2.5, product="1.0"):
    identity = Identity(DEVICE, "", "g++", "g++ 12", "ab" * 16, product, "policy-1")
    intervals = serve_intervals((m, us * m) for m in ms)
    return TableEntry(
        identity,
        Problem("int4g128", n=n, k=128, m=0),
        tuple(Interval(lo, hi, m, CONFIG, t, t + 1, f"r{m}") for lo, hi, m, t in intervals),
    )


ENTRIES = st.builds(
    entry,
    n=st.integers(1, 10**6),
    ms=st.sets(st.integers(1, 5000), max_size=5),
    us=st.floats(0.001, 1e6),
    product=st.text(max_size=8),
)


@settings(max_examples=30)
@given(st.lists(ENTRIES, max_size=4, unique_by=lambda e: (e.identity.id, e.problem.id)))
def test_what_is_written_is_read(tmp_path_factory, entries):
    folder = tmp_path_factory.mktemp("tables")
    written = write_generation(entries, folder)
    assert current_table(folder) == written == read_table(written.path)
    assert set(written.entries) == set(entries)


def test_the_same_entries_are_the_same_generation_and_no_rewrite(tmp_path):
    one = write_generation([entry(64), entry(128)], tmp_path)
    stamp = one.path.stat().st_mtime_ns
    two = write_generation([entry(128), entry(64)], tmp_path)
    assert one.id == two.id
    assert two.path.stat().st_mtime_ns == stamp
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([f"{one.id}.json", "current"])


def test_a_damaged_generation_is_written_again(tmp_path):
    table = write_generation([entry()], tmp_path)
    table.path.write_text("{")
    write_generation([entry()], tmp_path)
    assert current_table(tmp_path) == table


def test_without_a_folder_there_is_no_table(tmp_path):
    assert current_table(tmp_path / "absent") is None


@settings(max_examples=150)
@given(st.data())
def test_one_flipped_bit_never_gives_another_table(tmp_path_factory, data):
    table = write_generation([entry()], tmp_path_factory.mktemp("tables"))
    raw = bytearray(table.path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    table.path.write_bytes(raw)
    try:
        assert read_table(table.path) == table  # a flip in the white space is harmless
    except TableError as error:
        assert_one_sentence(error)


@given(st.integers(0, 400))
def test_a_truncated_table_is_refused(tmp_path_factory, length):
    table = write_generation([entry()], tmp_path_factory.mktemp("tables"))
    table.path.write_bytes(table.path.read_bytes()[:length])
    with pytest.raises(TableError) as error:
        read_table(table.path)
    assert_one_sentence(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "\x00\xff",
        "[" * 100_000,
        '{"schema": 2, "id": "", "created": "", "checksum": "", "entries": []}',
        '{"schema": 1, "id": 1, "created": 1, "checksum": 1, "entries": 1}',
        '{"schema": NaN}',
        '{"schema": 1, "schema": 1}',
        '{"schema": 1, "id": ' + "9" * 5000 + "}",
        '{"schema": {"a": 1}, "id": [], "created": {}, "checksum": {}, "entries": "\\ud800"}',
    ],
)
def test_hostile_json_is_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "table.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TableError) as error:
        read_table(path)
    assert_one_sentence(error.value)


@pytest.mark.parametrize(
    "value", [None, [], {}, -1, 1e300, 10**400, "x" * 1000, True, [{}], "\ud800"]
)
@pytest.mark.parametrize(
    "path",
    [
        ("identity",),
        ("identity", "device"),
        ("identity", "device", "isa"),
        ("identity", "device", "compute_capability"),
        ("problem",),
        ("problem", "n"),
        ("problem", "format"),
        ("problem", "op"),
        ("intervals",),
        ("intervals", 0),
        ("intervals", 0, "m"),
        ("intervals", 0, "m_high"),
        ("intervals", 0, "us"),
        ("intervals", 0, "config"),
        ("intervals", 0, "config", "family"),
        ("intervals", 0, "config", "block_m"),
    ],
)
def test_a_forged_value_with_a_right_checksum_is_refused_or_read(tmp_path, path, value):
    table = write_generation([entry()], tmp_path)
    body = json.loads(table.path.read_text())
    place = body["entries"][0]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    body["id"] = content_hash([body["schema"], body["entries"]])
    del body["checksum"]
    body["checksum"] = content_hash(body)
    table.path.write_text(json.dumps(body))
    try:
        read_table(table.path)
    except TableError as error:
        assert_one_sentence(error)


def test_an_unknown_knob_names_the_nearest(tmp_path):
    table = write_generation([entry()], tmp_path)
    text = table.path.read_text().replace("block_n", "block_q")
    body = json.loads(text)
    body["id"] = content_hash([1, body["entries"]])
    del body["checksum"]
    body["checksum"] = content_hash(body)
    table.path.write_text(json.dumps(body))
    with pytest.raises(TableError, match="did you mean 'block_"):
        read_table(table.path)


def test_an_absent_file_and_an_unwritable_folder_say_so(tmp_path):
    with pytest.raises(TableError, match="cannot be read"):
        read_table(tmp_path / "absent.json")
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TableError, match="must be writable"):
        write_generation([entry()], blocked / "tables")


@pytest.mark.parametrize("text", ["", "../../etc/passwd", "0" * 32, "\udc80"])
def test_a_wrong_pointer_is_refused(tmp_path, text):
    (tmp_path / "current").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TableError) as error:
        current_table(tmp_path)
    assert_one_sentence(error.value)


def test_two_entries_of_one_layer_are_refused(tmp_path):
    with pytest.raises(TableError, match="one entry"):
        write_generation([entry(us=1.0), entry(us=2.0)], tmp_path)


def test_a_reader_never_sees_a_piece_of_a_generation(tmp_path):
    generations = [[entry(n, us=float(n))] for n in range(1, 30)]
    ids = {write_generation(entries, tmp_path / "other").id for entries in generations}
    write_generation(generations[0], tmp_path)
    done = threading.Event()

    def write():
        for entries in generations:
            write_generation(entries, tmp_path)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(current_table(tmp_path).id)
    writer.join()
    assert seen <= ids


def assert_one_sentence(error):
    assert "\n" not in str(error)
    assert len(str(error)) < 600
