"""The whole road on a small model: tune, find it settled, serve it, be killed and lose nothing."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from humming.dispatch.tables import current_table
from humming.jit.identity import here
from humming.spec.config import config_id
from tuner.store.open import open_store

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 320,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "torch_dtype": "float32",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


def command(model: Path, database: Path, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "tuner.cli", "--model", str(model), "--format", "int4g128"),
        *("--db", str(database), "--json", *more),
    ]


def run(model: Path, database: Path, *more: str) -> dict:
    done = subprocess.run(
        command(model, database, *more), capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def trials(database: Path) -> list:
    with open_store(f"sqlite:///{database}") as store:
        found = [
            past
            for identity in {w.identity.id: w.identity for w in store.winners()}.values()
            for past in store.measurements(identity)
        ]
        return found or store.measurements(here())


def winners(database: Path) -> list:
    with open_store(f"sqlite:///{database}") as store:
        return store.winners()


def test_a_model_is_tuned_once_then_found_settled(model, tmp_path):
    database = tmp_path / "tuning.db"
    measured, first = 0, run(model, database, "--m", "1,8", "--budget", "60s")
    for _ in range(3):  # a busy machine reaches all problems within a few budgets only
        measured += first["measured"]
        if first["settled"] == 8:
            break
        first = run(model, database, "--m", "1,8", "--budget", "60s")
    assert measured >= len(first["problems"]) == first["settled"] == 8
    for row in first["problems"]:
        assert row["us"] > 0 and row["heuristic_us"] > 0 and row["torch_us"] > 0
        assert row["source"] in ("tuned", "heuristic")
        assert row["us"] <= row["heuristic_us"]
    assert 0 < first["ms_per_token"]["tuned"] <= first["ms_per_token"]["heuristic"]
    table = current_table(tmp_path / "tuning.db.tables")
    assert table is not None and len(table.entries) == 4
    assert str(table.path) == first["table"]

    again = run(model, database, "--m", "1,8", "--budget", "60s")
    assert again["measured"] == 0
    assert again["table"] == first["table"]
    assert again["problems"] == first["problems"]


def test_continue_searches_on_and_repeats_nothing(model, tmp_path):
    database = tmp_path / "tuning.db"
    run(model, database, "--m", "1", "--budget", "15s")
    before = Counter((t.problem_id, t.config_id) for t in trials(database) if t.config)
    more = run(model, database, "--m", "1", "--budget", "25s", "--continue")
    after = Counter((t.problem_id, t.config_id) for t in trials(database) if t.config)
    assert more["measured"] == sum(after.values()) - sum(before.values()) > 0
    assert set(after.values()) == {1}


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_9_loses_and_repeats_nothing(model, tmp_path, kills, record_property):
    record_property("kills", kills)
    database = tmp_path / "tuning.db"
    draw = random.Random(kills)
    seen: dict[str, float | None] = {}
    for _ in range(kills):
        process = subprocess.Popen(
            command(model, database, "--m", "1", "--budget", "60s"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(draw.uniform(1.0, 9.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if not database.exists():
            continue
        now = {trial.id: trial.us for trial in trials(database)}
        assert seen.items() <= now.items()
        seen = now
    run(model, database, "--m", "1", "--budget", "30s")
    done = Counter(
        (trial.problem_id, config_id(trial.config) if trial.config else "torch")
        for trial in trials(database)
    )
    assert set(done.values()) == {1}
    assert seen.items() <= {trial.id: trial.us for trial in trials(database)}.items()


def test_ctrl_c_ends_cleanly_and_keeps_what_was_measured(model, tmp_path):
    database = tmp_path / "tuning.db"
    process = subprocess.Popen(
        command(model, database, "--m", "1", "--budget", "60s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (database.exists() and winners(database)):
        time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.decode().strip().endswith("all that was measured is kept")
    assert "Traceback" not in errors.decode()
    assert trials(database)
    table = current_table(tmp_path / "tuning.db.tables")
    assert table is not None and table.entries


def test_a_budget_holds(model, tmp_path):
    start = time.monotonic()
    run(model, tmp_path / "tuning.db", "--m", "1", "--budget", "15s")
    assert time.monotonic() - start <= 15 * 1.05 + 2 + 8  # and the slack of a busy test machine
    assert (tmp_path / "tuning.db").exists()
