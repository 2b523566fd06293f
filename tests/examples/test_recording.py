"""The record of a test run: what it says of tests that pass, fail, are left out, or count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.recording import ROOT

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
    assert record["tests"] == {"passed": 2, "failed": 1, "skipped": 1}
    assert record["slow_tests"] == {"passed": 2} and record["exit_status"] == 1
    assert record["failed"] == ["test_some.py::test_fails"]
    assert record["counts"]["test_some.py::test_counts[20]"] == {"kills": 20}
    assert record["skipped"] == {"no GPU": 1}
    assert record["seconds"] > 0 and record["cpus"] >= 1 and len(record["git_commit"]) == 40
