"""The config that serves on a CPU where nothing was measured: legal for every m, n, k and CPU.

Measured on a server CPU with cold weights; another machine is what tuning is for. GPUs are
heuristics_cuda.py; tuned configs are tables.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from humming.spec.config import CpuConfig, KernelConfig
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.legality import takes
from humming.spec.problem import M_END, Problem


def _stream(
    path: str, block_m: int, unroll: int, prefetch_bytes: int, block_n: int = 16
) -> CpuConfig:
    return CpuConfig("stream", path, block_m, block_n, 128, unroll, prefetch_bytes, 1)


def _blocked(path: str, block_m: int, block_n: int, block_k: int) -> CpuConfig:
    return CpuConfig("blocked", path, block_m, block_n, block_k, 1, 0, 1)


STEPS: dict[str, tuple[tuple[int, CpuConfig], ...]] = {
    "generic": (
        (0, _stream("generic", 1, 2, 1024)),
        (2, _stream("generic", 2, 2, 1024)),
        (4, _blocked("generic", 4, 16, 256)),
    ),
    "avx2": (
        (0, _stream("avx2", 1, 2, 2048)),
        (2, _stream("avx2", 2, 2, 1024)),
        (3, _stream("avx2", 4, 1, 1024)),
        (5, _stream("avx2", 6, 1, 1024)),
        (7, _stream("avx2", 4, 1, 1024)),
        (17, _blocked("avx2", 6, 16, 512)),
    ),
    "avx_vnni": (
        (0, _stream("avx_vnni", 1, 2, 2048)),
        (2, _stream("avx_vnni", 2, 2, 1024)),
        (3, _stream("avx_vnni", 4, 1, 1024)),
        (5, _stream("avx_vnni", 6, 1, 1024)),
        (7, _blocked("avx_vnni", 6, 16, 512)),
    ),
    "avx512": (
        (0, _stream("avx512", 1, 1, 2048, block_n=64)),
        (2, _stream("avx512", 2, 4, 2048)),
        (3, _stream("avx512", 4, 2, 1024)),
        (5, _stream("avx512", 8, 1, 1024)),
        (9, _stream("avx512", 16, 1, 1024)),
        (17, _blocked("avx512", 16, 16, 256)),
        (33, _blocked("avx512", 8, 48, 512)),
        (129, _blocked("avx512", 4, 96, 256)),
    ),
    "avx512_vnni": (
        (0, _stream("avx512_vnni", 1, 2, 0, block_n=96)),
        (2, _stream("avx512_vnni", 2, 1, 2048, block_n=64)),
        (3, _stream("avx512_vnni", 4, 1, 2048, block_n=64)),
        (5, _stream("avx512_vnni", 6, 1, 1024, block_n=32)),
        (7, _stream("avx512_vnni", 8, 1, 1024, block_n=32)),
        (9, _stream("avx512_vnni", 6, 1, 1024, block_n=32)),
        (13, _stream("avx512_vnni", 8, 1, 1024, block_n=32)),
        (33, _stream("avx512_vnni", 4, 1, 0, block_n=32)),
    ),
    "avx512_bf16": (
        (0, _stream("avx512_bf16", 1, 2, 512, block_n=64)),
        (2, _stream("avx512_bf16", 2, 1, 2048, block_n=64)),
        (3, _stream("avx512_bf16", 4, 1, 2048, block_n=64)),
        (5, _stream("avx512_bf16", 6, 1, 1024, block_n=32)),
        (7, _stream("avx512_bf16", 8, 1, 1024, block_n=32)),
        (9, _stream("avx512_bf16", 6, 1, 1024, block_n=32)),
        (13, _stream("avx512_bf16", 8, 1, 1024, block_n=32)),
    ),
}
"""CPU code path -> (first m, config) of each interval: rows are padded to block_m, so waste few.

Measured at n = k = 4096, one thread, cold weights, on an AMD EPYC (Zen 4); the avx512 rows hold on
an Intel Xeon with 16 threads too, where 1x64 beats 1x16 by 10 % at m = 1. With bf16 pairs, reading
codes costs so little beside the products that streaming them again for every tile of x is best for
every m, and so it is with bytes; but not where a code is pieced together from planes: COSTLY_STEP.
"""

COSTLY_STEP = (33, _blocked("avx512_bf16", 4, 64, 1024))
"""The last step of formats whose codes are costly to decode, on a code path that streams for every
m: at m = 64 fp8e4m3 takes 0.91 of the time."""


def heuristic(problem: Problem, device: Device) -> CpuConfig:
    """The default config of `problem` (its m counts) on `device`.

    Legal wherever its family can serve the problem at all; the same for all m of one interval of
    `heuristic_intervals`.
    """
    steps = _steps(problem, device)
    config = [config for low, config in steps if low <= problem.m][-1]
    return _with_split_k(_narrowed(config, problem, device), problem, device)


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    lows = [low for low, _ in _steps(problem, device)]
    return [
        (low, high, heuristic(problem.at(low), device)) for low, high in pairwise([*lows, M_END])
    ]


def best_code_path(problem: Problem, device: Device) -> str:
    """The widest CPU code path that `device` has and that takes the activations; "generic" at the
    least."""
    return [path for path in CODE_PATH_FLAGS if device.supports(path) and takes(path, problem)][-1]


def _steps(problem: Problem, device: Device) -> tuple[tuple[int, CpuConfig], ...]:
    """The intervals of `problem`'s code path and format."""
    path, weight = best_code_path(problem, device), problem.quant.weight
    steps = STEPS[path]
    is_costly = weight.dtype.bits != 4 and not (weight.dtype.is_integer and weight.dtype.bits == 8)
    has_long_groups = (weight.group_size or 32) >= 32
    is_late = path == "avx512_bf16" and is_costly and has_long_groups
    return (*steps, COSTLY_STEP) if is_late else steps


def _narrowed(config: CpuConfig, problem: Problem, device: Device) -> CpuConfig:
    """Tiles of 16 rows where wider ones are too few to keep all threads busy to the end."""
    if config.mainloop == "stream" and problem.n < 2 * config.block_n * (device.threads or 1):
        return replace(config, block_n=16)
    return config


def _with_split_k(config: CpuConfig, problem: Problem, device: Device) -> CpuConfig:
    """Threads share one tile's k only where n alone has too few tiles to occupy them all."""
    if config.mainloop != "stream":
        return config
    tiles = -(-problem.n // config.block_n)
    most = min((device.threads or 1) // tiles, -(-problem.k // 128))
    return replace(config, split_k=max([s for s in (1, 2, 4, 8, 16) if s <= most], default=1))
