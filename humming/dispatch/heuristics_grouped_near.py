"""Configs of grouped kernels that may be as fast as the default of a mixture's experts on a GPU,
which a search tries first. The default is heuristics_grouped.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from humming.dispatch.expert_tiles import cheapest
from humming.dispatch.heuristics_experts import heuristic
from humming.dispatch.heuristics_grouped import busy_rows, grouped
from humming.dispatch.heuristics_grouped_skinny import fitted, walks
from humming.spec.config import KernelConfig, SkinnyConfig, WgmmaConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

_MOST = 10
_SKINNY_ROWS = 32  # of an expert, up to which the family skinny is worth a trial
_Shape = tuple[int, int, int, int, int]

# Of skinny: block_m, tiles_n, warps, num_stages, blocks_per_sm. The best of a layer on an H200.
_ONE: tuple[_Shape, ...] = (
    (1, 4, 4, 0, 2),
    (1, 4, 4, 0, 3),
    (1, 2, 8, 0, 1),
    (1, 1, 8, 0, 2),
    (1, 4, 4, 0, 1),
    (1, 4, 8, 0, 1),
    (1, 4, 1, 0, 1),
    (1, 2, 2, 0, 1),
    (1, 2, 2, 0, 2),
)
_FEW: tuple[_Shape, ...] = (
    (8, 8, 4, 4, 3),
    (8, 4, 4, 3, 3),
    (8, 4, 4, 4, 2),
    (8, 8, 4, 3, 3),
    (8, 4, 2, 2, 2),
    (8, 8, 2, 4, 2),
    (8, 8, 2, 2, 2),
    (8, 8, 1, 2, 3),
    (8, 4, 1, 2, 2),
)
# Of each kind of tile one or two; those of 32 rows were never raced.
_SOME: tuple[_Shape, ...] = (
    (16, 8, 4, 4, 2),
    (16, 4, 4, 4, 3),
    (24, 4, 4, 4, 2),
    (32, 4, 4, 4, 2),
    (16, 8, 2, 2, 3),
    (24, 4, 2, 2, 3),
    (8, 8, 4, 4, 3),
    (8, 8, 1, 2, 3),
)
# Blocks that walk, beside the default's. No GPU has raced more than twelve of a warp each yet.
_WALKING: tuple[_Shape, ...] = (
    (8, 8, 1, 1, 12),
    (8, 8, 1, 1, 14),
    (8, 8, 1, 2, 8),
    (8, 4, 1, 1, 16),
    (8, 8, 4, 1, 3),
    (8, 8, 2, 1, 6),
    (16, 4, 1, 1, 12),
    (16, 4, 1, 1, 16),
    (16, 4, 1, 1, 14),
    (16, 4, 1, 2, 8),
    (16, 8, 1, 1, 10),
    (16, 4, 2, 1, 6),
    (16, 4, 2, 1, 5),
    (24, 4, 1, 1, 8),
    (24, 4, 1, 2, 8),
    (24, 4, 1, 1, 11),
    (24, 4, 2, 1, 6),
    (24, 4, 2, 1, 5),
)
_CROWDED: tuple[_Shape, ...] = ((8, 8, 1, 2, 16), (8, 16, 1, 2, 2))
"""One warp for two groups of k: registers for many of them, or more columns for each."""
_TOGETHER: tuple[_Shape, ...] = ((16, 2, 4, 4, 3), (16, 4, 8, 2, 1), (24, 2, 4, 4, 3))
"""Warps that multiply as one."""
_WGMMA = ((2, 1, 2), (2, 2, 1), (1, 2, 2))
"""warpgroups, tiles_n, blocks_per_sm."""
_MANY = ((4, 1, 1), (3, 1, 1))
"""More warpgroups for tiles of few rows, which decode more than they multiply. Not raced yet."""
_SIZES = (16, 32, 48, 64, 80, 96, 112, 128)


def near(problem: Problem, device: Device) -> list[KernelConfig]:
    """Some of them, the likeliest first, all legal, the default left out."""
    if problem.m <= 0 or problem.layout == CUDA_A8_LAYOUT:
        return []
    default = heuristic(problem, device)
    seen, found = {default}, list[KernelConfig]()
    for config in (grouped(problem, device), *_every(problem, default)):
        config = fitted(config, device)
        if config not in seen and not config_violations(config, problem, device):
            found.append(config)
        seen.add(config)
    return found[:_MOST]


def _every(problem: Problem, default: KernelConfig) -> Iterator[KernelConfig]:
    rows = busy_rows(problem)
    if isinstance(default, SkinnyConfig) and default.walk and default.stage_tiles == 2:
        yield replace(default, stage_tiles=1)  # spills nothing; no GPU has raced it yet
    if rows <= 8:
        shapes = [
            shape
            for shape in (_ONE if rows == 1 else _FEW)
            if shape[2] * shape[4] >= 8 or problem.k < 1024  # else too few warps for so long sums
            if shape[2] == 1 or 128 * shape[2] <= problem.k  # else some would have none
        ]
        if rows > 1:
            yield from (_walking(problem, shape) for shape in _walks(problem, 8))
            if problem.k <= 256:
                shapes = [*_CROWDED, *(shape for shape in shapes if shape[2] == 1), *shapes]
        yield from (_skinny(problem, shape) for shape in shapes)
        return
    sizes = cheapest(problem, _SIZES)
    if rows <= _SKINNY_ROWS:
        block_m = next(size for size in (16, 24, 32) if rows <= size)
        short = 2 if problem.k <= 1024 else 4  # warps
        walks_here = [_walking(problem, shape) for shape in _walks(problem, min(block_m, 24))]
        yield from walks_here[:2]
        yield from (_wgmma(sizes[0], *shape) for shape in (*_MANY, *_WGMMA))
        yield from walks_here[2:]
        yield from (_walking(problem, shape) for shape in _walks(problem, 16 if rows > 16 else 8))
        fitting = [s for s in _SOME if s[0] in (block_m, 16) and s[2] == short]
        yield from (_skinny(problem, shape) for shape in fitting)
        yield from (replace(_skinny(problem, s), num_stages=6) for s in fitting[:1] if s[3] == 4)
        yield from (_skinny(problem, s, 1) for s in _TOGETHER if s[0] in (block_m, 16))
        yield from (_skinny(problem, s) for s in _SOME if s[0] == 8 and s[2] <= short)
    if sizes[0] <= 80:
        yield from (_wgmma(sizes[0], *shape) for shape in _MANY)
    yield replace(_wgmma(sizes[0], 2, 2, 1), raster_group_m=2)
    yield replace(_wgmma(sizes[0], 2, 2, 1), num_stages=6)
    for block_m in sizes[:4]:
        yield from (_wgmma(block_m, *shape) for shape in _WGMMA)


def _walks(problem: Problem, block_m: int) -> list[_Shape]:
    """Shapes of blocks that walk, for tiles of so many rows; none where a tile's sums take longer
    than all that a block saves by walking."""
    if problem.k > 4096 or not walks(problem):
        return []
    long = problem.k > 1024
    return [s for s in _WALKING if s[0] == block_m and (s[2] > 1) == long]


def _wgmma(block_m: int, warpgroups: int, tiles_n: int, blocks: int) -> WgmmaConfig:
    stages = 8 if block_m <= 80 else 6
    return WgmmaConfig(block_m, warpgroups, tiles_n, 1, 1, stages, 1, 8, blocks, 0, 1)


def _walking(problem: Problem, shape: _Shape) -> SkinnyConfig:
    config = replace(_skinny(problem, shape), x_stages=1, walk=1)
    pressed = config.warps * config.blocks_per_sm > 12  # for registers
    return replace(config, stage_tiles=1) if pressed else config


def _skinny(problem: Problem, shape: _Shape, warpgroup: int = 0) -> SkinnyConfig:
    block_m, tiles_n, warps, stages, blocks = shape
    narrow = problem.quant.weight.dtype.bits <= 4
    at_once = 2 if stages and tiles_n >= 4 and narrow else 1
    ahead = 3 if warpgroup else 1 + (block_m < 24 and -(-problem.k // 128) > warps)
    return SkinnyConfig(block_m, tiles_n, warps, 1, stages, at_once, ahead, blocks, 1, warpgroup, 0)
