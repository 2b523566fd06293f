"""The command `doctor`: a line for each check, exit codes, and never a traceback."""

import json
import os
import subprocess
import sys

import pytest

from humming.errors import StoreError
from humming.jit.identity import serving_device
from tests.tuner.test_cli import call  # noqa: F401  (a fixture)
from tuner.doctor import examine, print_report, to_json
from tuner.doctor.examine import CHECKS, worst
from tuner.doctor.finding import Finding, Surroundings, fail, failed_by, ok, warn


@pytest.fixture
def here() -> Surroundings:
    return Surroundings(serving_device())


def test_all_checks_answer_on_this_machine(call):  # noqa: F811
    code, out, err = call("doctor", "--device", "cpu", "--json")
    report = json.loads(out)
    assert err == ""
    assert [check["name"] for check in report["checks"]] == list(CHECKS)
    failed = [check for check in report["checks"] if check["status"] == "fail"]
    assert (code, report["status"] == "fail") == ((1, True) if failed else (0, False))
    assert failed == []
    assert all(bool(check["fix"]) == (check["status"] != "ok") for check in report["checks"])


def test_a_person_gets_a_line_for_each_check_and_each_fix(call, capsys):  # noqa: F811
    code, out, _ = call("doctor", "--device", "cpu")
    assert code == 0
    lines = out.splitlines()
    assert sum(line.startswith(("ok ", "warn", "fail")) for line in lines) == len(CHECKS)
    assert any("fix: humming-tune --model config.json" in line for line in lines)


def test_a_failed_check_is_exit_code_1(call, tmp_path):  # noqa: F811
    database = tmp_path / "broken.db"
    database.write_bytes(b"this is no database" * 100)
    code, out, err = call("doctor", "--device", "cpu", "--json", "--db", database)
    assert (code, err) == (1, "")
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    assert found["database"]["status"] == "fail"
    assert "not a SQLite database" in found["database"]["found"]


def test_a_check_that_raises_is_a_finding(here):
    def broken(_: Surroundings) -> Finding:
        raise RuntimeError("no\nluck")

    findings = examine(here, {"broken": broken, "sound": lambda _: ok("yes")})
    assert findings["broken"].status == "fail"
    assert findings["broken"].found.endswith("RuntimeError: no luck")
    assert findings["sound"] == ok("yes")


def test_the_worst_status_counts(here):
    assert worst({"a": ok("x"), "b": warn("x", "y")}) == "warn"
    assert worst({"a": fail("x", "y"), "b": warn("x", "y")}) == "fail"
    assert to_json({"a": ok("x")}, here)["status"] == "ok"


def test_a_fix_goes_with_what_is_not_well():
    with pytest.raises(ValueError):
        Finding("ok", "x", "y")
    with pytest.raises(ValueError):
        Finding("warn", "x")


def test_an_error_s_sentence_is_found_and_fix():
    finding = failed_by(StoreError("x.db is damaged; move it away, or restore a copy"))
    assert (finding.found, finding.fix) == ("x.db is damaged", "move it away, or restore a copy")
    assert failed_by(StoreError("x.db is damaged")).fix


def test_text_with_brackets_is_printed_as_it_is(capsys):
    from rich.console import Console

    print_report({"a": fail("x", "pip install 'humming-tune[cu13]'")}, Console(width=200))
    assert "pip install 'humming-tune[cu13]'" in capsys.readouterr().out


def test_a_wrong_device_is_one_sentence(call):  # noqa: F811
    code, out, err = call("doctor", "--device", "tpu")
    assert (code, out) == (2, "") and err.count("\n") == 1


def test_its_own_small_product_is_no_serving_traffic(tmp_path):
    environment = {**os.environ, "HUMMING_DATA": str(tmp_path / "data")}
    environment.pop("HUMMING_LEDGER", None)
    done = subprocess.run(
        [sys.executable, "-m", "tuner.entry", "doctor", "--device", "cpu", "--json"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    found = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert found["kernel"]["status"] == "ok", done.stderr
    assert list((tmp_path / "data").glob("ledger/*")) == []
