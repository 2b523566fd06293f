"""The record of a test run as a file: `pytest -p tests.recording --record FILE`. What is tested is
said by the tests; the counts that they hold are theirs too, by `record_property`. No tests here."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections import Counter, defaultdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SLOWEST = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, default=None, help="Where the run's record goes.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("record")
    if path is not None and not hasattr(config, "workerinput"):  # of several processes the first
        config.pluginmanager.register(Recorder(path), "recorder")


class Recorder:
    """Takes each test's reports, and writes the record when the run ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path, self._start = path, time.monotonic()
        self._begun = _begun()
        self._outcome: dict[str, str] = {}
        self._seconds: dict[str, float] = defaultdict(float)
        self._counts: dict[str, dict[str, Any]] = {}
        self._slow: set[str] = set()
        self._why: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] += report.duration
        if report.failed:
            self._outcome[name] = "failed"
        elif report.skipped:
            self._outcome.setdefault(name, "skipped")
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
            self._why[why.removeprefix("Skipped: ")] += 1
        elif report.when == "call":
            self._outcome.setdefault(name, "passed")
        if report.when == "call" and report.user_properties:
            self._counts[name] = dict(report.user_properties)
        if "slow" in report.keywords:
            self._slow.add(name)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._record(int(exitstatus)), indent=1) + "\n", "utf-8")

    def _record(self, exitstatus: int) -> dict[str, Any]:
        slowest = sorted(self._seconds, key=lambda name: -self._seconds[name])[:SLOWEST]
        return {
            **self._begun,
            "seconds": round(time.monotonic() - self._start, 1),
            "load_average_at_end": os.getloadavg()[0],
            "exit_status": exitstatus,
            "tests": dict(Counter(self._outcome.values())),
            "slow_tests": dict(Counter(self._outcome[name] for name in self._slow)),
            "failed": sorted(name for name, of in self._outcome.items() if of == "failed"),
            "counts": dict(sorted(self._counts.items())),
            "by_folder": self._by_folder(),
            "slowest": {name: round(self._seconds[name], 1) for name in slowest},
            "skipped": dict(self._why.most_common()),
        }

    def _by_folder(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for name, outcome in sorted(self._outcome.items()):
            row = found.setdefault(name.partition("::")[0].rpartition("/")[0], {"seconds": 0.0})
            row[outcome] = row.get(outcome, 0) + 1
            row["seconds"] = round(row["seconds"] + self._seconds[name], 1)
        return found


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
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line[:10] == "model name"), "")


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
