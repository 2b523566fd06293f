"""The record of a test run: what it says of tests that pass, fail, are left out, or count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.recording import ROOT, merged

TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 20])
def test_counts(kills, record_property):
    record_property("kills", kills)

def test_fails():
    assert 1 == 2

def test_cannot():
    pytest.skip("no GPU")
"""
INI = "[pytest]\nmarkers = slow: long\n"


def test_a_record_says_what_ran_where_and_how_it_ended(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(INI)
    words = [sys.executable, "-m", "pytest", "-p", "tests.recording", "-p", "no:cacheprovider"]
    words += ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run([*words, "--record", str(tmp_path / "all.json")], cwd=ROOT)
    assert done.returncode == 1
    record = json.loads((tmp_path / "all.json").read_text())
    assert record["totals"] == {"passed": 2, "failed": 1, "skipped": 1, "slow": 2}
    row = record["files"]["test_some.py"]
    assert row["failures"] == ["test_some.py::test_fails"] and row["run"] == 0
    assert row["counts"]["test_counts[20]"] == {"kills": 20} and row["why"] == {"no GPU": 1}
    (run,) = record["runs"]
    assert run["exit_status"] == 1 and run["seconds"] >= 0 and len(run["git_commit"]) == 40


def test_parts_of_the_tests_add_up() -> None:
    first = merged({}, {"n": 1}, {"a": {"passed": 3}, "b": {"failed": 1}}, {"a::x": 2.0})
    again = merged(first, {"n": 2}, {"b": {"passed": 1, "slow": 1}}, {"b::y": 5.0})
    assert again["totals"] == {"passed": 4, "failed": 0, "skipped": 0, "slow": 1}
    assert [again["runs"][row["run"]]["n"] for row in again["files"].values()] == [1, 2]
    assert list(again["slowest"]) == ["b::y", "a::x"]
    whole = merged(again, {"n": 3}, {"a": {"passed": 3}, "b": {"passed": 1}}, {})
    assert whole["runs"] == [{"n": 3}] and whole["files"]["b"] == {"run": 0, "passed": 1}
