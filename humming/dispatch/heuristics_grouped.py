"""The config of a GPU's grouped kernels where nothing was measured: legal for every mixture of
experts. CPUs, and where intervals of m begin, are heuristics_experts.py."""

from __future__ import annotations

import math
from dataclasses import replace

from humming.spec.config import KernelConfig, MmaConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import cuda_group_size
from humming.spec.legality import config_violations, problem_violations
from humming.spec.problem import Problem

_FEW_ROWS = 32  # of an expert, for which one stream of its weights is all that counts
_SPREAD = 1.5  # standard deviations of rows that a tile should hold
_GROUP = 128


def grouped(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` on the GPU `device`."""
    mean = problem.rows_of_expert
    spread = round(mean + _SPREAD * math.sqrt(mean)) if problem.m > 1 else 1
    choices = _mma(spread) if mean > _FEW_ROWS else []
    choices += _skinny(problem, device, min(spread, _FEW_ROWS))
    for config in choices:
        fitting = _fitted(config, device)
        if not config_violations(fitting, problem, device):
            return fitting
    raise AssertionError("the last choice runs everywhere")


def _fitted(config: KernelConfig, device: Device) -> KernelConfig:
    """`config` without what this GPU lacks."""
    capability = device.compute_capability or (0, 0)
    if capability < (9, 0) and isinstance(config, (SkinnyConfig, MmaConfig)):
        config = replace(config, dependent_launch=0)
    if capability < (8, 0) and isinstance(config, SkinnyConfig):
        config = replace(config, num_stages=0, stage_tiles=1, blocks_per_sm=1)
    return config


def _mma(rows: int) -> list[KernelConfig]:
    block_m = next((size for size in (64, 128) if rows <= size), 128)
    return [
        MmaConfig(block_m, 128, 128, 1, 4, 2, stages, 1, 0, 0, 8, 1, 1) for stages in (4, 3, 2)
    ] + [MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 1)]


def _skinny(problem: Problem, device: Device, rows: int) -> list[KernelConfig]:
    """Blocks small enough that several share a multiprocessor: while one begins or ends, another
    reads."""
    if problem_violations("skinny", problem, device):
        return [MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 1)]
    block_m = next(size for size in (1, 8, 16, 24, 32) if rows <= size)
    groups, tiles = -(-problem.k // _GROUP), -(-problem.n // 16)
    warps = max(w for w in (1, 2, 4, 8) if w <= max(1, groups))
    tiles_n = min(4 if block_m <= 16 else 2, tiles)
    if cuda_group_size(problem.quant.weight) == 16:
        tiles_n = min(tiles_n, 2)
    stages = min(4, max(1, -(-groups // warps) * tiles_n))
    best = SkinnyConfig(block_m, tiles_n, warps, 1, stages, 1, 1, 2, 1, 0, 0)
    small = replace(best, num_stages=0, stage_tiles=1, blocks_per_sm=1)
    choices: list[KernelConfig] = [best, replace(best, blocks_per_sm=1, num_stages=2)]
    choices += [replace(small, warps=min(w, warps)) for w in (8, 4, 2, 1)]
    return [*choices, replace(small, warps=1, tiles_n=16 if problem.n > 1 << 16 else 1)]
