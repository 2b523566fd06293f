"""The record of a test run as a file: `pytest -p tests.recording --record FILE`. What is tested is
said by the tests; the counts that they hold are theirs too, by `record_property`. No tests here."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from humming.jit.detect import cuda_devices
from humming.jit.identity import cuda_driver

ROOT = Path(__file__).parents[1]
SLOWEST = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, default=None, help="Where the run's record goes.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("record")
    if path is not None and not hasattr(config, "workerinput"):  # of several processes the first
        config.pluginmanager.register(Recorder(path), "recorder")


class Recorder:
    """Takes each test's reports, and writes the record when the run ends, however it ends. Files
    that did not run keep the rows of the run that they had, so that parts add up."""

    def __init__(self, path: Path) -> None:
        self._path, self._start = path, time.monotonic()
        self._begun = _begun()
        self._files: dict[str, dict[str, Any]] = {}
        self._outcome: dict[str, str] = {}
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Each test comes three times: as it is set up, called and torn down."""
        name = report.nodeid
        row = self._files.setdefault(name.partition("::")[0], {"seconds": 0.0})
        row["seconds"] = round(row["seconds"] + report.duration, 2)
        self._seconds[name] += round(report.duration, 2)
        before = self._outcome.get(name)
        if report.failed and before != "failed":
            self._outcome[name] = "failed"
            row.setdefault("failures", []).append(name)
        elif report.skipped:
            self._outcome[name] = "skipped"
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
            row.setdefault("why", Counter())[why.removeprefix("Skipped: ")] += 1
        elif report.when == "call" and before is None:
            self._outcome[name] = "passed"
        after = self._outcome.get(name)
        if before != after and after is not None:
            row[after] = row.get(after, 0) + 1
            if before is not None:
                row[before] -= 1
            elif "slow" in report.keywords:
                row["slow"] = row.get("slow", 0) + 1
        if report.when == "call" and report.user_properties:
            row.setdefault("counts", {})[name.partition("::")[2]] = dict(report.user_properties)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Writes the file."""
        run = {
            **self._begun,
            "seconds": round(time.monotonic() - self._start, 1),
            "load_average_at_end": os.getloadavg()[0],
            "exit_status": int(exitstatus),
        }
        body = merged(_read(self._path), run, self._files, self._seconds)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(body, indent=1) + "\n", "utf-8")


def merged(
    before: dict[str, Any],
    run: dict[str, Any],
    files: dict[str, dict[str, Any]],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """The record `before` with the files of another run in place of what it had of them; totals of
    all. A file's `run` is an index into `runs`."""
    runs = [*before.get("runs", []), run]
    rows = {**before.get("files", {})}
    rows |= {name: {"run": len(runs) - 1, **row} for name, row in files.items()}
    used = sorted({row["run"] for row in rows.values()})
    for row in rows.values():
        row["run"] = used.index(row["run"])
    slow = {**before.get("slowest", {}), **seconds}
    return {
        "runs": [runs[index] for index in used],
        "totals": {
            name: sum(row.get(name, 0) for row in rows.values())
            for name in ("passed", "failed", "skipped", "slow")
        },
        "slowest": {name: slow[name] for name in sorted(slow, key=lambda n: -slow[n])[:SLOWEST]},
        "files": dict(sorted(rows.items())),
    }


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    body: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return body


def _begun() -> dict[str, Any]:
    """What runs, where and when."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "cpu": _cpu(),
        "cpus": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "torch": version("torch"),
        "load_average": os.getloadavg()[0],
        **_gpus(),
    }


def _gpus() -> dict[str, Any]:
    """The GPUs that tests marked gpu run on, where there are any."""
    found = cuda_devices()
    names = [{"name": device.name, "uuid": device.uuid} for device in found]
    return {"gpus": names, "driver": cuda_driver()} if found else {}


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line[:10] == "model name"), "")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
