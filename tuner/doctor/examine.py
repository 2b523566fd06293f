"""The list of checks, their order, and their answers as text and JSON. No check is defined here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from humming.version import __version__
from tuner.doctor import machine, software, storage
from tuner.doctor.finding import STATUSES, Finding, Status, Surroundings, fail

Check = Callable[[Surroundings], Finding]

CHECKS: dict[str, Check] = {
    "import names": software.import_names,
    "python": software.python_version,
    "driver": software.driver,
    "gpus": software.gpus,
    "torch": software.torch_build,
    "c++ compiler": software.cxx_compiler,
    "nvrtc": software.nvrtc,
    "code paths": machine.code_paths,
    "threads": machine.threads,
    "load": machine.load,
    "cache": storage.cache,
    "disk": storage.disk,
    "database": storage.database,
    "table": storage.table,
    "kernel": software.kernel,
}
"""Name -> check, in the order in which they are asked and shown."""

_STYLES: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


def examine(surroundings: Surroundings, checks: Mapping[str, Check] = CHECKS) -> dict[str, Finding]:
    """Each check's finding. A check that fails itself is a finding too, never an exception."""
    return {name: _asked(check, surroundings) for name, check in checks.items()}


def worst(findings: Mapping[str, Finding]) -> Status:
    """The worst status of all."""
    return max((found.status for found in findings.values()), key=STATUSES.index, default="ok")


def to_json(findings: Mapping[str, Finding], surroundings: Surroundings) -> dict[str, Any]:
    """The report as plain data: `status` is the worst one."""
    return {
        "version": __version__,
        "device": surroundings.device.name,
        "status": worst(findings),
        "checks": [
            {"name": name, "status": found.status, "found": found.found, "fix": found.fix}
            for name, found in findings.items()
        ],
    }


def print_report(findings: Mapping[str, Finding], console: Console) -> None:
    """One line for each check, and under what is not well the way to mend it."""
    width = max(map(len, findings))
    for name, found in findings.items():
        style = _STYLES[found.status]
        console.print(f"[{style}]{found.status:4}[/] {name:{width}}  ", end="")
        console.print(found.found, markup=False, soft_wrap=True)
        if found.fix:
            console.print(f"{'':{width + 7}}fix: {found.fix}", markup=False, soft_wrap=True)
    counts = {status: sum(f.status == status for f in findings.values()) for status in STATUSES}
    console.print(", ".join(f"{count} {status}" for status, count in counts.items()))


def _asked(check: Check, surroundings: Surroundings) -> Finding:
    try:
        return check(surroundings)
    except Exception as error:  # whatever it stumbles over here, the other checks go on
        text = " ".join(str(error).split())[:300]
        return fail(
            f"this check itself failed with {type(error).__name__}: {text}",
            "please report this line, and what is special about this machine",
        )
