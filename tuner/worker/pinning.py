"""Pins the worker of a CPU to as many CPUs as it has threads, so that nothing moves while it is
timed: one a physical core, the least busy ones."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.05
"""How long the CPUs are watched to see which are busy."""

_STAT = Path("/proc/stat")
_TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology"


def pin(threads: int) -> list[int]:
    """The CPUs to which this process is pinned from now on; empty where it may use no more than
    `threads` anyway, or the system refuses."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) <= threads:
        return []
    before = _busy()
    time.sleep(LOOK_S)
    busy = {cpu: ticks - before.get(cpu, ticks) for cpu, ticks in _busy().items()}
    chosen = choose(threads, {cpu: _core_of(cpu) for cpu in allowed}, busy)
    try:
        os.sched_setaffinity(0, chosen)
    except OSError:
        return []
    return chosen


def choose(threads: int, core_of: Mapping[int, str], busy: Mapping[int, int]) -> list[int]:
    """`threads` of the CPUs in `core_of`, sorted: the least busy one of each physical core, the
    least busy cores first; second CPUs of a core only where cores do not suffice."""
    order = sorted(core_of, key=lambda cpu: (busy.get(cpu, 0), cpu))
    load: dict[str, int] = {}
    for cpu in order:  # work on one of a core's CPUs slows the other
        load[core_of[cpu]] = load.get(core_of[cpu], 0) + busy.get(cpu, 0)
    rank: dict[int, tuple[int, int, int]] = {}
    met: dict[str, int] = {}
    for cpu in order:
        core = core_of[cpu]
        rank[cpu] = met.get(core, 0), load[core], cpu
        met[core] = met.get(core, 0) + 1
    return sorted(sorted(core_of, key=lambda cpu: rank[cpu])[:threads])


def _busy() -> dict[int, int]:
    """CPU -> ticks that it was busy since the machine started; empty where nothing tells."""
    found: dict[int, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in _STAT.read_text().splitlines():
            name, *ticks = line.split()
            if name.startswith("cpu") and name != "cpu":
                values = [int(value) for value in ticks[:8]]
                found[int(name[3:])] = sum(values) - values[3] - values[4]  # idle and iowait
    return found


def _core_of(cpu: int) -> str:
    """A name of the physical core of a CPU; the CPU's own where nothing tells."""
    folder = Path(_TOPOLOGY.format(cpu))
    try:
        package = (folder / "physical_package_id").read_text().strip()
        return f"{package}:{(folder / 'core_id').read_text().strip()}"
    except OSError:
        return f"cpu{cpu}"
