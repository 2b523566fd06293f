"""Shipped tables: sound, of this tree's kernels, made from an export, and never in the way."""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import shipped as making
from humming.dispatch import shipped
from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import Interval, Origin, TableEntry
from humming.dispatch.shipped import FOLDER, file_of, shipped_table
from humming.dispatch.tables import read_table, write_generation
from humming.errors import TableError
from humming.jit.source_units import source_hash
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

DEVICE = Device("cpu", "Some CPU (R) @ 2", "x86_64", 2**25, isa=("avx2", "f16c", "fma"), threads=4)
LAYER = Problem("int4g128", n=64, k=256, m=0)


def entry(device=DEVICE, **changes):
    identity = Identity(device, "", "g++", "g++ 12", source_hash("cpu"), "1.0", "policy-1")
    config = heuristic(LAYER.at(1), DEVICE)
    interval = Interval(0, 4, 1, config, 1.0, 2.0, "ab" * 16)
    return TableEntry(replace(identity, **changes), LAYER, (interval,))


def exported(tmp_path, *entries):
    origins = {"ab" * 16: Origin("gpu-node-17", "2026-12-01T00:00:00+00:00")}
    return write_generation(entries, tmp_path / "exported", origins)


def test_every_shipped_table_is_sound_legal_and_of_these_kernels():
    for path in FOLDER.glob("*.json"):
        for one in read_table(path).entries:
            assert path == file_of(one.identity.device.name)
            for interval in one.intervals:
                at = one.problem.at(interval.m)
                assert config_violations(interval.config, at, one.identity.device) == []
    assert making.outdated() == [], "tune anew, or delete the table: it would never serve"


def test_a_table_is_made_from_an_export_by_device_and_names_no_host(tmp_path):
    other = entry(replace(DEVICE, name="Another"))
    made = making.ship(exported(tmp_path, entry(), other), tmp_path)
    assert [path.name for path in made] == ["another.json", "some_cpu_r_2.json"]
    table = read_table(made[1])
    assert table.entries == (entry(),)
    assert {origin.host for origin in table.origins.values()} == {"humming-tune"}
    assert "gpu-node-17" not in made[1].read_text()


def test_records_of_other_kernels_are_not_shipped(tmp_path):
    old = entry(source_hash="cd" * 16)
    made = making.ship(exported(tmp_path, old, entry(driver="1")), tmp_path)
    assert read_table(made[0]).entries == (entry(driver="1"),)
    with pytest.raises(TableError, match="of this tree's kernel sources"):
        making.ship(exported(tmp_path, old), tmp_path)
    (tmp_path / "old").mkdir()
    write_generation([old], tmp_path / "old")
    assert "1 of 1 layers" in making.outdated(tmp_path / "old")[0]


def test_records_whose_kernels_are_the_same_text_are_taken_from_another_tree(tmp_path):
    then, now = "cd" * 16, source_hash("cpu")
    table = exported(tmp_path, entry(source_hash=then), entry(source_hash="ef" * 16))
    ours = making.kernel_keys(table.path, Path.cwd())
    assert ours["source_hash"] == {"cpu": now} and len(ours["keys"]["ab" * 16]) == 1
    theirs = {**ours, "source_hash": {"cpu": then}}
    assert making.of_these_kernels(table, theirs, ours).entries == (entry(),)
    changed = {**theirs, "keys": {"ab" * 16: ["0" * 32]}}
    assert making.of_these_kernels(table, changed, ours).entries == ()


def test_kernels_are_compared_by_their_machine_code_too(tmp_path):
    """A comment changes the text of a kernel and nothing of what it compiles to."""
    gpu_of_table = read_table(next(FOLDER.glob("*.json"))).entries[0]
    one = replace(gpu_of_table, intervals=gpu_of_table.intervals[:1])
    origins = {one.intervals[0].record: Origin("node", "2026-12-01T00:00:00+00:00")}
    table = write_generation([one], tmp_path / "exported", origins)
    tree = tmp_path / "tree"
    shutil.copytree("humming", tree / "humming", ignore=shutil.ignore_patterns("__pycache__"))
    header = tree / "humming/kernels/cuda/include/humming/ptx/types.cuh"
    header.write_text(header.read_text() + "// A remark.\n")
    for compiled, alike in ((False, False), (True, True)):
        theirs = making.kernel_keys(table.path, tree, compiled)
        ours = making.kernel_keys(table.path, Path.cwd(), compiled)
        assert (theirs["keys"] == ours["keys"]) is alike, compiled


def test_it_is_found_by_the_device_and_a_damaged_one_costs_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    shipped._read.cache_clear()
    assert shipped_table(DEVICE) is None
    making.ship(exported(tmp_path, entry()), tmp_path)
    shipped._read.cache_clear()
    assert shipped_table(DEVICE).entries == (entry(),)
    file_of(DEVICE.name).write_text("{}")
    shipped._read.cache_clear()
    with pytest.warns(RuntimeWarning, match="heuristic serves"):
        assert shipped_table(DEVICE) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert shipped_table(DEVICE) is None  # said once
    shipped._read.cache_clear()


def test_the_command_line(tmp_path, capsys):
    assert making.main(["--check"]) == 0
    assert making.main([str(tmp_path / "absent.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
