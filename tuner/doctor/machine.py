"""Checks of the machine as this process sees it: instructions, threads, load. Software is
software.py."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from humming.jit.detect import available_threads
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.naming import counted
from tuner.doctor.finding import Finding, Surroundings, ok, warn

_CGROUP = Path("/sys/fs/cgroup")
BUSY_SHARE = 0.75
"""Load average per core above which times are unsure."""


def code_paths(s: Surroundings) -> Finding:
    """Which code paths of the CPU family run here."""
    if s.device.kind != "cpu":
        return ok("not asked for, as a GPU serves")
    runs = [path for path in CODE_PATH_FLAGS if s.device.supports(path)]
    if runs == ["generic"]:
        return warn(
            f"{s.device.name} has none of the vector instructions that kernels are written for",
            "serve on an x86-64 CPU with AVX2 or AVX-512; in a virtual machine, pass the host's "
            "CPU flags on",
        )
    return ok(f"{s.device.name} runs {', '.join(runs)}")


def threads(_: Surroundings) -> Finding:
    """torch's number of threads against affinity and the container's share of time."""
    wanted, allowed, cpus = torch.get_num_threads(), available_threads(), os.cpu_count() or 1
    quota = cpu_quota()
    held = (
        f"torch uses {counted(wanted, 'thread')}; this process may run on {allowed} of {cpus} CPUs"
    )
    if wanted > allowed:
        return warn(held, f"export OMP_NUM_THREADS={allowed}")
    if quota is not None and quota < wanted:
        return warn(
            f"{held}, and its container has the time of {quota:.3g}",
            f"export OMP_NUM_THREADS={max(1, math.floor(quota))}",
        )
    return ok(held)


def load(_: Surroundings) -> Finding:
    """Other work on this machine, beside which times are unsure."""
    average, allowed = os.getloadavg()[0], available_threads()
    found = f"load average {average:.2f} on {counted(allowed, 'CPU')}"
    if average > BUSY_SHARE * allowed:
        return warn(found, "end other work before you tune: times measured beside it are unsure")
    return ok(found)


def cpu_quota(root: Path = _CGROUP) -> float | None:
    """CPUs' worth of time that this process's control group may use; None without a limit."""
    try:
        limit, period = (root / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError, ZeroDivisionError):
        return None
