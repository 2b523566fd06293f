"""A pytest plugin: what was compiled for GPUs in a run of the tests, counted by architecture and
family, and how the run ended, as a JSON file. It judges nothing; tests do.

    python -m pytest -m "not gpu" -p tests.compile_record --compile-record FILE

`--compile-kept FOLDER` keeps each result under the hash of its source, so that a run which was cut
goes on where it was; a kernel of another source, flag, architecture or compiler is compiled anew.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from humming.errors import CompileError
from humming.jit import nvrtc
from humming.jit.cache import compile_key
from humming.jit.source import KernelSource

Found = nvrtc.Cubin | CompileError
_COMPILE = nvrtc.compile_cubin
_PATIENCE_S = 600.0
"""For a compiler on a busy machine."""


class Compiled(NamedTuple):
    """What came of one source; `what` is its "architecture family"."""

    what: str
    refused: bool
    spills: bool
    registers: int
    seconds: float


@dataclass
class Record:
    """What was compiled, each source once, by its key; `kept` is a folder of earlier results."""

    kept: Path | None = None
    rows: dict[str, Compiled] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compile_cubin(self, source: KernelSource, arch: str, timeout_s: float = 60) -> nvrtc.Cubin:
        """What nvrtc.compile_cubin does, and counts it."""
        key = compile_key(source, nvrtc.find_nvrtc(), arch)
        found, took = self._earlier(key) or self._compile(key, source, arch, timeout_s)
        with self._lock:
            self.rows.setdefault(key, _row(f"{arch} {source.family}", found, took))
        if isinstance(found, CompileError):
            raise found
        return found

    def _compile(
        self, key: str, source: KernelSource, arch: str, timeout_s: float
    ) -> tuple[Found, float]:
        begin, found = time.monotonic(), None
        try:
            found = _COMPILE(source, arch, max(timeout_s, _PATIENCE_S))
        except CompileError as error:
            return error, time.monotonic() - begin
        took = time.monotonic() - begin
        if self.kept is not None:
            self.kept.mkdir(parents=True, exist_ok=True)
            fresh = self.kept / f"{key}.{os.getpid()}.{threading.get_ident()}"
            fresh.write_bytes(pickle.dumps((replace(found, data=b""), took)))
            fresh.replace(self.kept / key)
        return found, took

    def _earlier(self, key: str) -> tuple[Found, float] | None:
        if self.kept is None or not (self.kept / key).exists():
            return None
        found: tuple[Found, float] = pickle.loads((self.kept / key).read_bytes())
        return found

    def document(self, seconds: float, exit_code: int) -> dict[str, object]:
        """Plain JSON. Kernels that are refused are those by which tests show that rules hold."""
        refused = Counter(row.what for row in self.rows.values() if row.refused)
        compiled = Counter(row.what for row in self.rows.values() if not row.refused)
        spilling = Counter(row.what for row in self.rows.values() if row.spills)
        return {
            "what": "kernels that a run of the tests compiled for GPUs, each source once",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "git_commit": _git("rev-parse", "HEAD"),
            "git_dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
            "compiler": nvrtc.find_nvrtc().version,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "tests": dict(sorted(self.outcomes.items())),
            "exit_code": exit_code,
            "seconds": round(seconds, 1),
            "compiling_seconds": round(sum(row.seconds for row in self.rows.values()), 1),
            "most_registers": max((row.registers for row in self.rows.values()), default=0),
            "kernels": compiled.total(),
            "refused": refused.total(),
            "by_arch_and_family": {
                what: {
                    "compiled": compiled[what],
                    "refused": refused[what],
                    "spilling": spilling[what],
                }
                for what in sorted({*compiled, *refused})
            },
        }


def _row(what: str, found: Found, took: float) -> Compiled:
    if isinstance(found, CompileError):
        return Compiled(what, True, False, 0, took)
    return Compiled(what, False, found.spill_bytes > 0, found.registers, took)


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


class _Plugin:
    """In the process that writes the file; others of the same run hand it their rows."""

    def __init__(self, record: Record, out: Path) -> None:
        self._record, self._out, self._started = record, out, time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Counts each test once: as it was called, or as it failed or was skipped before."""
        if report.when == "call" or report.outcome != "passed":
            self._record.outcomes[report.outcome] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Takes the rows of a process of pytest-xdist that ends."""
        rows = getattr(node, "workeroutput", {}).get("compiled", {})
        self._record.rows |= {key: Compiled(*row) for key, row in rows.items()}

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Writes the file."""
        took = time.monotonic() - self._started
        text = json.dumps(self._record.document(took, int(exitstatus)), indent=1)
        self._out.parent.mkdir(parents=True, exist_ok=True)
        self._out.write_text(text + "\n")


class _Part:
    """In a process of pytest-xdist that runs a part of the tests."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def pytest_sessionfinish(self, session: Any) -> None:
        """Hands over what was compiled here."""
        rows = {key: list(row) for key, row in self._record.rows.items()}
        session.config.workeroutput["compiled"] = rows


def pytest_addoption(parser: pytest.Parser) -> None:
    """--compile-record and --compile-kept."""
    parser.addoption("--compile-record", type=Path, help="file for what was compiled, as JSON")
    parser.addoption("--compile-kept", type=Path, help="folder of results to go on from")


def pytest_configure(config: pytest.Config) -> None:
    """Counts from here on; tests import the compiler's function later."""
    out = config.getoption("--compile-record")
    if out is not None:
        record = Record(config.getoption("--compile-kept"))
        nvrtc.compile_cubin = record.compile_cubin
        part = hasattr(config, "workeroutput")
        config.pluginmanager.register(_Part(record) if part else _Plugin(record, out))
