"""`humming-tune repro`: the script of a record runs by itself and says what the record is about."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from humming.dispatch.heuristics import heuristic
from humming.jit.identity import here, serving_device
from humming.jit.source import KERNELS_DIR
from humming.spec.problem import Problem
from tests.tuner.test_cli import call, expect_one_sentence  # noqa: F401  (fixtures)
from tuner.evidence.reproducing import inlined
from tuner.store.open import open_store
from tuner.store.records import MeasurementDraft

LAYER = Problem("int4g128", n=48, k=256, m=2, activation_dtype="fp32", output_dtype="fp32")


@pytest.fixture
def records(tmp_path):
    """A trial, torch's time and a promotion in the default database of `call`."""
    identity, config = here(serving_device()), heuristic(LAYER, serving_device())
    with open_store(f"sqlite:///{tmp_path}/tuning.db") as store:
        draft = MeasurementDraft(
            identity=identity, problem=LAYER, config=config, outcome="wrong_result", detail='"""'
        )
        trial = store.finish(None, draft)
        torch = store.finish(
            None,
            MeasurementDraft(
                identity=identity, problem=LAYER, config=None, kind="torch", outcome="ok", us=9.0
            ),
        )
        winner = store.promote(
            identity, LAYER, config, us=5.0, heuristic_us=5.0, evidence={"serves": [1, 8]}
        )
    return {"trial": trial, "torch": torch, "winner": winner}


@pytest.mark.parametrize("kind", ["trial", "winner"])
def test_the_script_runs_by_itself(call, records, tmp_path, kind):  # noqa: F811
    file = tmp_path / "repro.py"
    record = records[kind]
    code, out, err = call("repro", record.id[:12], "--out", file, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {"out": str(file), "notes": []}
    text = file.read_text()
    assert record.id in text and "#include <" in text and '#include "humming' not in text
    (tmp_path / "tuning.db").unlink()
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == 0, done.stderr
    assert "outcome: ok" in done.stdout
    assert re.search(r"largest error: \S+ of its bound", done.stdout)


def test_the_script_is_printed_where_no_file_is_named(call, records):  # noqa: F811
    code, out, _ = call("repro", records["winner"].id)
    assert code == 0
    compile(out, "repro.py", "exec")


def test_other_names_are_one_sentence(call, records, tmp_path):  # noqa: F811
    expect_one_sentence(call("repro"), "id of a record")
    expect_one_sentence(call("repro", "ab"), "at least 4")
    expect_one_sentence(call("repro", "%%%%"), "no record")
    expect_one_sentence(call("repro", "0" * 31), "no record")
    expect_one_sentence(call("repro", records["torch"].id), "no kernel")
    words = ("repro", records["winner"].id, "--out", tmp_path / "no" / "x.py")
    expect_one_sentence(call(*words), "--out")


def test_headers_are_taken_in_once(tmp_path):
    (tmp_path / "humming").mkdir()
    (tmp_path / "humming" / "a.h").write_text('#pragma once\n#include "humming/b.h"\nint a;\n')
    (tmp_path / "humming" / "b.h").write_text("#pragma once\n#include <stdint.h>\nint b;\n")
    text = inlined('#include "humming/b.h"\n#include "humming/a.h"\nint c;\n', tmp_path)
    assert text.count("int b;") == text.count("int a;") == 1
    assert text.index("int b;") < text.index("int a;") < text.index("int c;")
    assert "#include <stdint.h>" in text and (KERNELS_DIR / "cpu" / "include").is_dir()
