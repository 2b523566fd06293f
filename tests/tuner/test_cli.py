"""Bad input gets one sentence and exit code 2, never a traceback; what was stored before stays."""

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tuner.test_pipeline import TINY
from tuner.cli import main

PASSWORD = "s3cret-pa55"


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Runs the command line in this process: (exit code, standard output, standard error)."""

    def call(*words: str):
        monkeypatch.setattr("sys.argv", ["humming-tune", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    monkeypatch.setenv("HUMMING_DB", str(tmp_path / "tuning.db"))
    return call


@pytest.fixture
def model(tmp_path: Path):
    """Writes a config.json with some values changed, and returns its path."""

    def model(**changes) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**TINY, **changes}))
        return path

    return model


def expect_one_sentence(result, *parts: str):
    code, out, err = result
    assert code == 2, (code, out, err)
    assert out == ""
    assert err.startswith("humming-tune: ") and err.count("\n") == 1, err
    assert "Traceback" not in err
    for part in parts:
        assert part in err, err


def test_a_missing_or_broken_model(call, model, tmp_path):
    expect_one_sentence(call("--model", tmp_path / "absent.json"), "absent.json")
    expect_one_sentence(call("--model", tmp_path), "config.json")
    (tmp_path / "text.json").write_text("not json {")
    expect_one_sentence(call("--model", tmp_path / "text.json"), "text.json")
    expect_one_sentence(call(), "--model")
    expect_one_sentence(call("plan"), "--model")


def test_a_config_without_sizes_or_of_an_unknown_architecture(call, model):
    expect_one_sentence(call("--model", model(hidden_size=None)), "hidden_size")
    changes = {"architectures": ["WondrousForCausalLM"], "model_type": "wondrous"}
    expect_one_sentence(call("--model", model(**changes)), "WondrousForCausalLM")


def test_a_tensor_parallel_size_that_does_not_divide_the_heads(call, model):
    expect_one_sentence(call("--model", model(), "--tp", 3), "3", "4")
    expect_one_sentence(call("plan", "--model", model(), "--tp", 0), "tp")


@pytest.mark.parametrize("m", ["0", "abc", "1,,2", "-4", "2147483648", "1.5", ""])
def test_a_wrong_m(call, model, m):
    expect_one_sentence(
        call("--model", model(), "--format", "int4g128", f"--m={m}"), "--m", "1,16,256"
    )


def test_a_wrong_format_budget_or_device(call, model):
    path = model()
    expect_one_sentence(call("--model", path, "--format", "int5gg"), "int5gg", "int4g128")
    expect_one_sentence(call("--model", path, "--format", "int4-int4"), "int4-int4", "use int4")
    expect_one_sentence(call("--model", path, "--budget", "soon"), "60s")
    expect_one_sentence(call("--model", path, "--device", "tpu"), "tpu")
    expect_one_sentence(call("--model", path, "--device", "cuda:99"), "cuda:99")


def test_a_model_that_quantizes_nothing_says_how_to_go_on(call, model):
    expect_one_sentence(call("--model", model()), "--format int4g128")


def test_databases_that_cannot_be_used(call, model, tmp_path):
    words = ("--model", model(), "--format", "int4g128", "--db")
    (tmp_path / "garbage.db").write_bytes(b"this is no database" * 100)
    (tmp_path / "file").write_text("")
    expect_one_sentence(call(*words, tmp_path / "garbage.db"), "garbage.db")
    expect_one_sentence(call(*words, tmp_path / "file" / "x.db"), "x.db")
    expect_one_sentence(call(*words, tmp_path), str(tmp_path))
    expect_one_sentence(call(*words, "mysql://host/db"), "mysql")
    expect_one_sentence(call(*words, ":memory:"), "needs a file")


def test_an_unreachable_postgres_never_shows_its_password(call, model):
    url = f"postgresql://someone:{PASSWORD}@127.0.0.1:9/tuning"
    result = call("--model", model(), "--format", "int4g128", "--db", url)
    expect_one_sentence(result, "127.0.0.1")
    assert PASSWORD not in result[2]


def test_a_database_of_a_newer_revision_is_left_alone(call, model, tmp_path):
    database = tmp_path / "tuning.db"
    assert call("db", "upgrade")[0] == 0
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = database.read_bytes()
    expect_one_sentence(call("--model", model(), "--format", "int4g128"), "newer")
    expect_one_sentence(call("db", "upgrade"), "newer")
    assert database.read_bytes() == before


def test_no_compiler(call, model, monkeypatch, tmp_path):
    python_only = tmp_path / "bin"
    python_only.mkdir()
    monkeypatch.setenv("PATH", str(python_only))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("humming.jit.compiler._packaged_zig", lambda: None)
    monkeypatch.setattr("tuner.pipeline.os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "empty cache"))
    assert shutil.which("c++") is None
    expect_one_sentence(call("--model", model(), "--format", "int4g128"), "compiler", "install g++")


def test_a_search_space_with_a_typo(call, tmp_path):
    file = tmp_path / "mine.yaml"
    text = Path("search_spaces/spaces/cpu.yaml").read_text()
    file.write_text(text.replace("parameters:", "paramters:"))
    expect_one_sentence(call("spaces", file), "mine.yaml:", "did you mean 'parameters'?")
    file.write_text(text)
    assert call("spaces", file)[0] == 0


def test_spaces_plan_version_and_upgrade_print_json(call, model):
    code, out, _ = call("spaces", "--json")
    assert code == 0 and "cpu" in {space["family"] for space in json.loads(out)["spaces"]}
    code, out, _ = call("plan", "--model", model(), "--format", "int4g128", "--json", "--m", "1")
    plan = json.loads(out)
    assert code == 0 and {row["m"] for row in plan["tuning"]} == {1}
    assert all(row["candidates"] > 0 and row["rejections"] for row in plan["tuning"])
    assert plan["predicted_s"] > 0
    code, out, _ = call("db", "upgrade", "--json")
    assert code == 0 and json.loads(out)["revision"]
    assert call("--version")[1].startswith("humming-tune 0.")


def test_an_m_that_does_not_fit_the_memory_is_refused_before_anything_runs(call, model):
    words = ("--model", model(), "--format", "int4g128")
    expect_one_sentence(call(*words, "--m", "2147483647"), "GiB", "smaller --m")
    code, out, _ = call("plan", *words, "--m", "1,2147483647", "--json")
    plan = json.loads(out)
    assert code == 0 and {row["m"] for row in plan["tuning"]} == {1}
    assert all("GiB" in row["reason"] for row in plan["not_tunable"])


@pytest.mark.parametrize("words", [("spaces",), ("spaces", "--json")])
def test_an_output_that_cannot_be_written_is_one_sentence(words):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tuner.cli", *words], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1 and b"cannot be written" in done.stderr


def test_plan_writes_nothing(call, model, tmp_path):
    assert call("plan", "--model", model(), "--format", "int4g128")[0] == 0
    assert not (tmp_path / "tuning.db").exists()


def test_an_unknown_option_is_a_usage_error(call):
    code, _, err = call("--modle", "x")
    assert code == 2 and "--model" in err and "Traceback" not in err
