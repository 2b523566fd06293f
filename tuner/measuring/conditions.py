"""What stood beside a set of samples: waiting threads and foreign load on a CPU, clocks, heat and
other processes on a GPU; and which of that makes samples worth nothing. NVML is conditions_cuda.py.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from humming.spec.device import Device

Conditions = Mapping[str, Any]
"""Plain JSON, None where nothing tells. On a CPU `waited_share`, the largest part of the time that
a thread of ours stood in line for a core; `foreign_share`, the part of all cores that other
processes used; `preemptions`; `cpus`, those that it may run on. On a GPU `sm_mhz`, `memory_mhz`,
`temperature_c`, `power_w`, `throttle`, a list of reasons, and `other_processes`. On both
`seconds`."""

WAITED_SHARE = 0.02
"""Threads that stand in line for longer disturb times by as much as promotion decides on."""

FOREIGN_SHARE = 0.5
"""Other work on so many of all cores takes memory and cache from ours, though no thread waits."""

_THREADS = Path("/proc/self/task")
_STAT = Path("/proc/stat")


class Monitor(Protocol):
    """Notes the conditions between `begin` and `end`."""

    def begin(self) -> None: ...
    def end(self) -> Conditions: ...


def monitor_for(device: Device) -> Monitor:
    """The monitor of a device's kind."""
    if device.kind == "cuda":
        # It needs NVML, which only GPUs have.
        from tuner.measuring.conditions_cuda import CudaMonitor

        return CudaMonitor(device)
    return CpuMonitor()


def foul(conditions: Conditions) -> str | None:
    """Why samples taken under `conditions` prove nothing, in a phrase; None where they may."""
    waited = conditions.get("waited_share")
    if waited is not None and waited > WAITED_SHARE:
        return f"threads waited {waited:.0%} of the time for a core"
    foreign = conditions.get("foreign_share")
    if foreign is not None and foreign > FOREIGN_SHARE:
        return f"other processes kept {foreign:.0%} of the cores busy"
    if conditions.get("throttle"):
        return f"the GPU was throttled ({', '.join(conditions['throttle'])})"
    others = conditions.get("other_processes")
    if others:
        return f"{others} other processes were on the GPU"
    if conditions.get("cold") is False:
        return "memory held too few copies of the weight to keep the cache cold"
    return None


def lacking(conditions: Conditions) -> str:
    """One phrase where memory did not hold all copies of the weight that were wanted; else
    empty."""
    sets, wanted = conditions.get("weight_sets"), conditions.get("wanted_sets")
    if sets is None or sets == wanted:
        return ""
    cold = conditions.get("cold")
    return (
        f"memory holds {sets} of {wanted} copies of the weight, which "
        f"{'still exceed' if cold else 'do not exceed'} the cache"
        f"{'' if cold else ', so nothing is promoted'}"
    )


def marked(conditions: Conditions) -> dict[str, Any]:
    """`conditions` for the record; where they are foul, "foul" says why."""
    why = foul(conditions)
    return dict(conditions) if why is None else {**conditions, "foul": why}


def clean_rounds(
    rounds: Sequence[Sequence[float]], conditions: Sequence[Conditions]
) -> list[list[float]]:
    """`rounds[i][r]` less the rounds under foul conditions; all of them where none are known."""
    if not conditions:
        return [list(side) for side in rounds]
    kept = [index for index, beside in enumerate(conditions) if foul(beside) is None]
    return [[side[index] for index in kept if index < len(side)] for side in rounds]


class CpuMonitor:
    """From /proc; each figure is None where the kernel does not give it."""

    def __init__(self) -> None:
        self._start = self._snapshot()

    def begin(self) -> None:
        """Note where all counters stand."""
        self._start = self._snapshot()

    def end(self) -> Conditions:
        """What happened since `begin`."""
        before, after = self._start, self._snapshot()
        seconds = max(after.clock - before.clock, 1e-9)
        waits = [ns - before.waited_ns.get(thread, 0) for thread, ns in after.waited_ns.items()]
        return {
            "seconds": round(seconds, 6),
            "waited_share": round(max(waits) / 1e9 / seconds, 4) if waits else None,
            "foreign_share": _foreign_share(before, after, seconds),
            "preemptions": after.preemptions - before.preemptions,
            "cpus": sorted(os.sched_getaffinity(0)),
        }

    def _snapshot(self) -> _Counters:
        return _Counters()


class _Counters:
    """Counters of this process and of the machine, read at once."""

    def __init__(self) -> None:
        self.clock = time.perf_counter()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.preemptions = usage.ru_nivcsw
        self.own_s = usage.ru_utime + usage.ru_stime
        self.waited_ns = _waited_ns()
        self.busy_s, self.cores = _busy_s()


def _foreign_share(before: _Counters, after: _Counters, seconds: float) -> float | None:
    """The machine counts in steps of 10 ms a core: over a shorter time nothing can be said."""
    if after.busy_s is None or before.busy_s is None or seconds < 0.05:
        return None
    foreign = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return round(min(1.0, max(0.0, foreign / (seconds * after.cores))), 4)


def _waited_ns() -> dict[str, int]:
    """Thread -> nanoseconds that it was ready and had no core."""
    found = {}
    try:
        threads = list(_THREADS.iterdir())
    except OSError:
        return {}
    for thread in threads:
        try:
            found[thread.name] = int((thread / "schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return found


def _busy_s() -> tuple[float | None, int]:
    """Seconds that all cores together were busy since the machine started, and their number."""
    try:
        lines = _STAT.read_text().splitlines()
        ticks = [int(value) for value in lines[0].split()[1:9]]
        cores = sum(line[:3] == "cpu" and line[3:4].isdigit() for line in lines)
    except (OSError, ValueError, IndexError):
        return None, os.cpu_count() or 1
    idle = ticks[3] + ticks[4]  # idle and iowait
    return (sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), max(1, cores)
