"""What a check is asked about and what it answers. No checks here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from humming.spec.device import Device

Status = Literal["ok", "warn", "fail"]
STATUSES: tuple[Status, ...] = ("ok", "warn", "fail")
"""From best to worst. `warn` serves, but slower or less surely than it could; `fail` must be
mended."""


@dataclass(frozen=True)
class Surroundings:
    """What is examined: the device that shall serve, and the database (a URL or path, or None for
    the default one)."""

    device: Device
    database: str | None = None


@dataclass(frozen=True)
class Finding:
    """A check's answer: `found` is a phrase, `fix` a command or one sentence, empty where all is
    well."""

    status: Status
    found: str
    fix: str = ""

    def __post_init__(self) -> None:
        if (self.status == "ok") == bool(self.fix):
            raise ValueError(f"a fix goes with warn and fail alone, but got {self}")


def ok(found: str) -> Finding:
    """All is well."""
    return Finding("ok", found)


def warn(found: str, fix: str) -> Finding:
    """It works, and could work better."""
    return Finding("warn", found, fix)


def fail(found: str, fix: str) -> Finding:
    """It does not work."""
    return Finding("fail", found, fix)


def failed_by(error: Exception) -> Finding:
    """A finding of an error's sentence, "what is wrong; what to do"."""
    text = " ".join(str(error).split()) or type(error).__name__
    found, _, fix = text.rpartition("; ")
    return fail(found or text, fix if found else "mend this, then run humming-tune doctor again")
