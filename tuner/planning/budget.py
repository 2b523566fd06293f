"""The time a tuning may take, counted from process start, and how it is shared out. Knows no
problem and no kernel."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from humming.errors import UsageError

CLOSING_S = 0.5
CLOSING_SHARE = 0.3
"""What writing the table and ending takes, at the least and as a part of what starting took, which
tells how busy the machine is; it counts as spent from the start."""

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds of "90", "60s", "10m" or "1.5h". Raises UsageError on anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not match or float(match[1]) <= 0:
        raise UsageError(
            f"a budget must be a positive duration, but got '{text}'; write 60s or 10m"
        )
    return float(match[1]) * _UNITS[match[2]]


def process_age_s() -> float:
    """Seconds since this process started, by the kernel's clock; 0 where /proc does not tell."""
    try:
        started_ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, uptime_s - started_ticks / os.sysconf("SC_CLK_TCK"))


def spent_s() -> float:
    """Seconds of a budget that are spent when a command begins: its start and its end."""
    age_s = process_age_s()
    return age_s + max(CLOSING_S, CLOSING_SHARE * age_s)


class Budget:
    """A deadline. `Budget(None)` never ends."""

    def __init__(self, seconds: float | None, spent_s: float = 0.0) -> None:
        self._deadline = None if seconds is None else time.monotonic() + seconds - spent_s

    def left_s(self) -> float:
        """Seconds until the deadline, never negative; infinity without one."""
        return (
            float("inf") if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        )

    def left_with_s(self, grace_s: float) -> float:
        """Seconds until `grace_s` after the deadline, never negative."""
        if self._deadline is None:
            return float("inf")
        return max(0.0, self._deadline + grace_s - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self.left_s() <= 0.0

    def share(self, weight: float, weights_left: float) -> Budget:
        """The part of what is left that goes to one of several pieces of work, by weight."""
        left = self.left_s()
        return Budget(None if left == float("inf") else left * weight / max(weight, weights_left))
