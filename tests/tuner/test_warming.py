"""humming-tune warm fills the kernel cache, once, for every m that a model's layers may see."""

import json

import pytest

from humming.errors import CompileError, UsageError
from humming.jit.detect import cpu_device
from tests.tuner.test_pipeline import TINY
from tuner import warming
from tuner.cli import main


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """`warm` with an empty cache: (exit code, the JSON that it printed)."""
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HUMMING_DB", str(tmp_path / "tuning.db"))
    (tmp_path / "config.json").write_text(json.dumps(TINY))

    def run():
        words = ["humming-tune", "warm", "--model", str(tmp_path), "--device", "cpu"]
        words += ["--format", "int4g128", "--json"]
        monkeypatch.setattr("sys.argv", words)
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        return code, json.loads(capsys.readouterr().out)

    return run


def test_the_second_time_all_is_there(run, tmp_path):
    code, first = run()
    assert code == 0
    assert first["compiled"] >= 2 and first["cached"] == 0
    assert first["failed"] == first["not_servable"] == []
    assert str(tmp_path) in first["cache"]
    code, second = run()
    assert (code, second["compiled"]) == (0, 0)
    assert second["cached"] == first["compiled"]


def test_what_fails_is_named_and_told_by_the_exit_code(run, monkeypatch):
    def fail(*_):
        raise CompileError("no\nregisters")

    monkeypatch.setattr(warming, "compiled", fail)
    code, said = run()
    assert code == 1
    assert said["compiled"] == 0
    assert all("no registers" in sentence for sentence in said["failed"])


def test_a_cache_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match="HUMMING_CACHE"):
        warming.warm(tmp_path, cpu_device(), format="int4g128", db=str(tmp_path / "tuning.db"))
