"""The config that serves where nothing was measured: legal for every m, n, k, device.

Tuned configs are tables.py.
"""

from __future__ import annotations

from bisect import bisect_right

from humming.spec.config import CpuConfig, KernelConfig
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.legality import CPU_MAX_ACCUMULATORS
from humming.spec.problem import M_END, Problem

STEPS = (0, 2, 3, 5, 9, 17, 33)
"""First m of each interval with one heuristic config: the intervals meet where block_m changes."""

_STREAM_BLOCK_M = (1, 2, 4, 4, 8, 8)
_BLOCKED_FROM = 33
_PREFETCH_BYTES = 2048
_BYTES_WORTH_A_THREAD = 1 << 16


def heuristic(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` (its m counts) on `device`.

    Legal wherever its family can serve the problem at all; the same for all m of one interval of
    `heuristic_intervals`.
    """
    step = bisect_right(STEPS, problem.m) - 1
    code_path = best_code_path(device)
    if STEPS[step] >= _BLOCKED_FROM:
        return _blocked(code_path)
    return _stream(problem, device, code_path, _STREAM_BLOCK_M[step])


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    intervals: list[tuple[int, int, KernelConfig]] = []
    for low, high in zip(STEPS, [*STEPS[1:], M_END], strict=True):
        config = heuristic(problem.at(low), device)
        if intervals and intervals[-1][2] == config:
            low = intervals.pop()[0]
        intervals.append((low, high, config))
    return intervals


def best_code_path(device: Device) -> str:
    """The widest CPU code path whose flags `device` has; "generic" at the least."""
    return [path for path in CODE_PATH_FLAGS if device.supports(path)][-1]


def _stream(problem: Problem, device: Device, code_path: str, block_m: int) -> CpuConfig:
    room = CPU_MAX_ACCUMULATORS[code_path]
    block_m = min(block_m, room)
    block_n = 16 * max(1, min(2, room // block_m))
    unroll = max(u for u in (1, 2, 4) if block_m * block_n // 16 * u <= room)
    return CpuConfig(
        mainloop="stream",
        code_path=code_path,
        block_m=block_m,
        block_n=block_n,
        block_k=128,
        unroll=min(unroll, 2),
        prefetch_bytes=_PREFETCH_BYTES,
        split_k=_split_k(problem, device, block_n),
    )


def _split_k(problem: Problem, device: Device, block_n: int) -> int:
    """Threads to share one tile's k: only where n alone has too few tiles to occupy them all."""
    threads = device.threads or 1
    tiles = -(-problem.n // block_n)
    if tiles >= threads or problem.n * problem.k // 2 < threads * _BYTES_WORTH_A_THREAD:
        return 1
    most = min(threads // tiles, -(-problem.k // 128))
    return max(split for split in (1, 2, 4, 8, 16) if split <= most)


def _blocked(code_path: str) -> CpuConfig:
    block_m, block_n = {"avx512": (12, 32)}.get(code_path, (6, 16))
    return CpuConfig("blocked", code_path, block_m, block_n, 256, 1, 0, 1)
