"""What a layer's call takes: as it was measured here, or by the limits of memory and arithmetic.
Formats are compared in ranking.py."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from humming.dispatch.seen import as_seen
from humming.dispatch.sources import load_table
from humming.errors import CompilerNotFoundError, HummingError
from humming.jit.bandwidth import read_bandwidth
from humming.jit.identity import here
from humming.settings import database_url
from humming.spec.device import Device
from humming.spec.dtypes import dtype
from humming.spec.identity import tier
from humming.spec.problem import Problem
from tuner.store.migrate import revision
from tuner.store.open import open_store
from tuner.worker.bench import torch_device
from tuner.worker.verify import float_type
from tuner.workload import LayerGroup

_SHAPE = (256, 1024, 1024)
_PASSES = 5

Key = tuple[str, int, int, int, str]
"""Format, n, k, m and activation type: what a time is looked up by."""


@dataclass(frozen=True)
class Limits:
    """How fast the device reads memory and multiplies, both measured now: bytes and operations per
    second."""

    bytes_per_s: float
    flops: float


@dataclass(frozen=True)
class Evidence:
    """What was measured on a machine like this one: problems with their microseconds, and those of
    torch's own linear by (n, k, m, type)."""

    found: dict[Key, tuple[Problem, float]] = field(default_factory=dict)
    torch_us: dict[tuple[int, int, int, str], float] = field(default_factory=dict)

    def add(self, problem: Problem, us: float) -> None:
        """Take a measured time; a later one of the same problem counts."""
        self.found[_key(problem)] = (problem, us)

    def over_limit(self, m: int, limits: Limits) -> float:
        """How many times what the limits say kernels take at `m`, at least 1: the median over what
        was measured at the nearest m; 1 where nothing was."""
        near = sorted(self.found.values(), key=lambda item: abs(math.log(item[0].m / m)))
        alike = [(p, us) for p, us in near if p.m == near[0][0].m and p.op == "dense"]
        ratios = [us / _by_limits(p.least_bytes, p, 1, limits).us for p, us in alike]
        return max(1.0, statistics.median(ratios)) if ratios else 1.0


@dataclass(frozen=True)
class Time:
    """Microseconds of one call, and whether they were measured."""

    us: float
    measured: bool


def read_evidence(device: Device, database: str | None) -> Evidence:
    """What the tuned table and the database know; nothing where neither is there."""
    evidence, identity = Evidence(), here(device)
    try:
        table = load_table(database)
    except HummingError:
        table = None
    for entry in as_seen(table, identity).entries if table else ():
        if tier(entry.identity, identity) != "none":
            for interval in entry.intervals:
                evidence.add(entry.problem.at(interval.m), interval.us)
    url = database_url(database)
    if revision(url) is None:
        return evidence
    with open_store(url, write=False) as store:
        for winner in store.winners(identity):
            evidence.add(winner.problem, winner.us)
            if winner.torch_us is not None:
                evidence.torch_us[_key(winner.problem)[1:]] = winner.torch_us
    return evidence


def measure_limits(device: Device, activation_dtype: str) -> Limits:
    """Takes about a second. Without a compiler memory is read by torch."""
    try:
        bytes_per_s = read_bandwidth(device)
    except (CompilerNotFoundError, HummingError):
        bytes_per_s = _torch_bytes_per_s(device)
    return Limits(bytes_per_s, _flops(device, activation_dtype))


def quantized_time(group: LayerGroup, problem: Problem, evidence: Evidence, limits: Limits) -> Time:
    """One call of a quantized layer."""
    known = evidence.found.get(_key(problem)) if group.op == "dense" else None
    if known is not None:
        return Time(known[1], True)
    return _by_limits(problem.least_bytes, problem, group.top_k or 1, limits)


def plain_time(
    group: LayerGroup, m: int, activation_dtype: str, evidence: Evidence, limits: Limits
) -> Time:
    """One call of a layer that is kept in 16 (or 32) bits and run by torch."""
    known = evidence.torch_us.get((group.n, group.k, m, activation_dtype))
    if known is not None and group.op == "dense":
        return Time(known, True)
    element = dtype(activation_dtype).bits // 8
    weights = group.n * group.k * element * _experts_read(group, m)
    touched = weights + m * (group.n + group.k) * element
    problem = Problem("int8", n=group.n, k=group.k, m=m)  # whose shape alone is looked at
    return _by_limits(touched, problem, group.top_k or 1, limits)


def _experts_read(group: LayerGroup, m: int) -> float:
    """How many experts' weights m tokens touch, where each token's are drawn evenly; 1 for a dense
    layer."""
    if group.experts is None or group.top_k is None:
        return 1.0
    return group.experts * (1.0 - (1.0 - min(1.0, group.top_k / group.experts)) ** m)


def _by_limits(total_bytes: float, problem: Problem, top_k: int, limits: Limits) -> Time:
    operations = 2.0 * problem.m * problem.n * problem.k * top_k
    return Time(1e6 * max(total_bytes / limits.bytes_per_s, operations / limits.flops), False)


def _key(problem: Problem) -> Key:
    return problem.format, problem.n, problem.k, problem.m, problem.activation_dtype


def _torch_bytes_per_s(device: Device) -> float:
    size = max(64 << 20, 4 * device.cache_bytes)
    buffer = torch.ones(size // 4, device=torch_device(device))
    return size / _seconds(buffer.sum, device)


def _flops(device: Device, activation_dtype: str) -> float:
    """Operations per second of torch's product of middling matrices."""
    m, n, k = _SHAPE if device.kind == "cpu" else tuple(8 * size for size in _SHAPE)
    where, kind = torch_device(device), float_type(activation_dtype)
    x, w = torch.ones(m, k, dtype=kind, device=where), torch.ones(n, k, dtype=kind, device=where)
    return 2.0 * m * n * k / _seconds(lambda: torch.nn.functional.linear(x, w), device)


def _seconds(call: Callable[[], object], device: Device) -> float:
    call()
    taken = []
    for _ in range(_PASSES):
        start = time.perf_counter()
        call()
        if device.kind == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
