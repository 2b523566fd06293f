"""The config that serves where nothing was measured: legal for every m, n, k and device.

Measured on a server CPU with cold weights; another machine is what tuning is for. Tuned configs
are tables.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from humming.spec.config import CpuConfig, KernelConfig
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.problem import M_END, Problem


def _stream(path: str, block_m: int, unroll: int, prefetch_bytes: int) -> CpuConfig:
    return CpuConfig("stream", path, block_m, 16, 128, unroll, prefetch_bytes, 1)


def _blocked(path: str, block_m: int, block_n: int, block_k: int) -> CpuConfig:
    return CpuConfig("blocked", path, block_m, block_n, block_k, 1, 0, 1)


def _narrow(path: str) -> tuple[tuple[int, CpuConfig], ...]:
    """The steps of a code path with 16 registers of 8 floats: six accumulators at most."""
    return (
        (0, _stream(path, 1, 4, 2048)),
        (2, _stream(path, 2, 2, 2048)),
        (3, _stream(path, 4, 1, 1024)),
        (5, _stream(path, 6, 1, 1024)),
        (7, _stream(path, 4, 1, 1024)),
        (17, _blocked(path, 6, 16, 256)),
    )


STEPS: dict[str, tuple[tuple[int, CpuConfig], ...]] = {
    "generic": _narrow("generic"),
    "avx2": _narrow("avx2"),
    "avx512": (
        (0, _stream("avx512", 1, 4, 2048)),
        (2, _stream("avx512", 2, 4, 2048)),
        (3, _stream("avx512", 4, 2, 1024)),
        (5, _stream("avx512", 8, 1, 1024)),
        (17, _blocked("avx512", 16, 16, 256)),
        (33, _blocked("avx512", 8, 48, 512)),
        (129, _blocked("avx512", 4, 96, 256)),
    ),
}
"""CPU code path -> (first m, config) of each interval: rows are padded to block_m, so waste few."""


def heuristic(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` (its m counts) on `device`.

    Legal wherever its family can serve the problem at all; the same for all m of one interval of
    `heuristic_intervals`.
    """
    steps = STEPS[best_code_path(device)]
    config = [config for low, config in steps if low <= problem.m][-1]
    return _with_split_k(config, problem, device)


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    lows = [low for low, _ in STEPS[best_code_path(device)]]
    return [
        (low, high, heuristic(problem.at(low), device)) for low, high in pairwise([*lows, M_END])
    ]


def best_code_path(device: Device) -> str:
    """The widest CPU code path whose flags `device` has; "generic" at the least."""
    return [path for path in CODE_PATH_FLAGS if device.supports(path)][-1]


def _with_split_k(config: CpuConfig, problem: Problem, device: Device) -> CpuConfig:
    """Threads share one tile's k only where n alone has too few tiles to occupy them all."""
    if config.mainloop != "stream":
        return config
    tiles = -(-problem.n // config.block_n)
    most = min((device.threads or 1) // tiles, -(-problem.k // 128))
    return replace(config, split_k=max([s for s in (1, 2, 4, 8, 16) if s <= most], default=1))
