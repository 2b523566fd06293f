"""The config of a GPU's grouped kernels where nothing was measured: legal for every mixture of
experts. CPUs, and where intervals of m begin, are heuristics_experts.py."""

from __future__ import annotations

import math
from dataclasses import replace

from humming.dispatch.expert_tiles import cheapest, tiles_of
from humming.dispatch.heuristics_wgmma8 import deepest
from humming.spec.carriers import carrier
from humming.spec.config import KernelConfig, MmaConfig, SkinnyConfig, Wgmma8Config, WgmmaConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations, problem_violations
from humming.spec.legality.wgmma8 import needs_promotion
from humming.spec.problem import Problem

# Rows of an expert for which one stream of its weights is all that counts: with wgmma and without.
# At 16, 128 experts of 1536x2048, int4g128, take 87 us by wgmma on an H200, 93 by skinny.
_FEW_ROWS = (12, 20)
_SPREAD = 1.5  # standard deviations of rows that a tile should hold
_GROUP = 128
_SMS = 132  # where a device does not say
_PLAIN = MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 1)
"""What every GPU runs of every problem that the family takes."""


def grouped(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` on the GPU `device`."""
    mean, rows = problem.rows_of_expert, busy_rows(problem)
    choices: list[KernelConfig] = []
    if problem.layout == CUDA_A8_LAYOUT:
        choices = [*_wgmma8(problem, device, rows), *_mma_of_codes(problem, rows)]
    elif mean > _FEW_ROWS[device.compute_capability != (9, 0)]:
        choices = [*_wgmma(problem), *_mma(rows), _PLAIN]
    if problem.layout != CUDA_A8_LAYOUT:
        choices += [*_skinny(problem, min(rows, 32), device.sm_count or _SMS), _PLAIN]
        choices += _wgmma(problem)  # takes groups of 8, as no other family
    for config in choices:
        fitting = fitted(config, device)
        if not config_violations(fitting, problem, device):
            return fitting
    return choices[-1]


def busy_rows(problem: Problem) -> int:
    """Rows of an expert that is busier than most: what a tile should hold."""
    mean = problem.rows_of_expert
    return round(mean + _SPREAD * math.sqrt(mean)) if problem.m > 1 else 1


def fitted(config: KernelConfig, device: Device) -> KernelConfig:
    """`config` without what this GPU lacks."""
    capability = device.compute_capability or (0, 0)
    if capability < (9, 0) and isinstance(config, (SkinnyConfig, MmaConfig)):
        config = replace(config, dependent_launch=0)
    if capability < (8, 0) and isinstance(config, SkinnyConfig):  # registers hold weights too
        tiles_n = min(config.tiles_n, 4 if config.block_m <= 8 else 2)
        config = replace(config, tiles_n=tiles_n, num_stages=0, stage_tiles=1, blocks_per_sm=1)
    return config


def _wgmma(problem: Problem) -> list[KernelConfig]:
    """Two warpgroups of 128 rows of w, or of 64 where more are not to be had."""
    block_m = cheapest(problem, (32, 48, 64, 80, 96, 112, 128))[0]
    shapes = [(2, 8)] if block_m <= 80 else []
    shapes += [(2, 6), (2, 5), (2, 4), (2, 3), (1, 6), (1, 4), (1, 3)]
    return [
        WgmmaConfig(
            block_m=block_m,
            warpgroups=2,
            tiles_n=tiles,
            cluster_n=1,
            split_k=1,
            num_stages=stages,
            num_stores=1,
            raster_group_m=8,
            blocks_per_sm=1,
            stream_k=0,
            dependent_launch=1,
        )
        for tiles, stages in shapes
    ]


def _mma(rows: int) -> list[KernelConfig]:
    block_m = 64 if rows <= 64 else 128
    return [MmaConfig(block_m, 128, 128, 1, 4, 2, d, 1, 0, 0, 8, 1, 1) for d in (4, 3, 2)]


# block_m, warpgroups, tiles_n, blocks_per_sm, k_warpgroups
_WGMMA8_TILES = (
    (16, 2, 1, 2, 1),
    (32, 2, 1, 2, 1),
    (48, 2, 1, 2, 1),
    (64, 2, 2, 1, 1),
    (64, 2, 1, 1, 1),
    (96, 2, 2, 1, 1),
    (128, 2, 2, 1, 1),
    (128, 2, 1, 1, 1),
)
_ALONE = (16, 4, 1, 1, 4)
"""For one row an expert of few experts: its multiprocessor has no other tile."""


def _wgmma8(problem: Problem, device: Device, rows: int) -> list[Wgmma8Config]:
    """Tiles that hold `rows`, the smallest first, or the largest, each as deep as fits."""
    if problem_violations("wgmma8", problem, device):
        return []
    fitting = [tile for tile in _WGMMA8_TILES if tile[0] >= min(rows, 128)]
    if problem.m <= 1:
        fitting.insert(0, _ALONE)
    found = (
        deepest(
            Wgmma8Config(
                block_m=block_m,
                warpgroups=warpgroups,
                tiles_n=tiles_n,
                cluster_n=1,
                num_stages=2,
                raster_group_m=8,
                blocks_per_sm=blocks,
                stream_k=0,
                promote=int(needs_promotion(problem)),
                dependent_launch=1,
                k_warpgroups=turns,
            ),
            problem,
            device,
        )
        for block_m, warpgroups, tiles_n, blocks, turns in [*fitting, *_WGMMA8_TILES[::-1]]
    )
    return [config for config in found if config is not None]


def _mma_of_codes(problem: Problem, rows: int) -> list[MmaConfig]:
    """Tiles for products of codes that every GPU of theirs runs."""
    narrow = int(carrier(problem.format) is None)
    if rows <= 32:
        tiles = [(16 if rows <= 16 else 32, 64, 256, 1, 2, 2 - narrow, 2)]
    else:
        tiles = [(64, 128, 128, 2, 4, 1, 1), (64, 64, 128, 2, 2, 1, 2)]
    tiles += [(32, 64, 128, 1, 4, 1, 1)]
    return [
        MmaConfig(
            m, n, k << narrow if k < 256 else k, wm, wn, wk, d, 1, 0, 0, 8, b, 1, narrow=narrow
        )
        for m, n, k, wm, wn, wk, b in tiles
        for d in (4, 3, 2)
    ]


def _skinny(problem: Problem, rows: int, sms: int) -> list[KernelConfig]:
    """Blocks small enough that several share a multiprocessor: while one begins or ends, another
    reads. Those of short sums walk."""
    block_m = next(size for size in (1, 8, 16, 24, 32) if rows <= size)
    groups, tiles = -(-problem.k // _GROUP), -(-problem.n // 16)
    most = max(w for w in (1, 2, 4, 8) if w <= max(1, groups))
    if rows == 1:
        first = _one_row(problem, groups, tiles, sms)
    elif walking := _walking(problem, block_m, sms):
        first = walking
    elif block_m == 8:
        first = _few_rows(problem, groups, tiles, sms)
    else:
        first = _some_rows(problem, block_m, groups, tiles)
    plain = SkinnyConfig(block_m, min(4, tiles), most, 1, 3, 1, 1, 1, 1, 0, 0)
    small = replace(plain, tiles_n=min(2, tiles), num_stages=0)
    fewer = range(first.blocks_per_sm, 0, -1)
    choices: list[KernelConfig] = [replace(first, blocks_per_sm=b) for b in fewer]
    if first.walk:
        alone = _few_rows(problem, groups, tiles, sms)
        choices += [replace(alone, block_m=block_m, blocks_per_sm=b) for b in (2, 1)]
    choices.append(plain)
    choices += [replace(small, warps=min(warps, most)) for warps in (8, 4, 2, 1)]
    return [*choices, replace(small, warps=1, tiles_n=16 if problem.n > 1 << 16 else 1)]


def _one_row(problem: Problem, groups: int, tiles: int, sms: int) -> SkinnyConfig:
    """Tiles as wide as leave each multiprocessor a block, as whatever is to be read should be on
    its way at once. As measured on an H200."""
    met = max(problem.experts_met, problem.top_k or 1)  # an interval may begin at no token
    wide = (width for width in (4, 2) if width <= tiles and met * (tiles // width) >= 0.9 * sms)
    tiles_n = next(wide, 1)
    warps = 8 if groups >= 32 else 4 if groups >= 4 else 1
    blocks = 1 if warps == 8 else 2
    if warps == 4 and 2 * sms < met * -(-tiles // tiles_n) <= 3 * sms:
        blocks = 3  # one round instead of two
    return SkinnyConfig(1, tiles_n, warps, 1, 0, 1, 1 + (groups > warps), blocks, 1, 0, 0)


def walks(problem: Problem) -> bool:
    """Whether blocks can go through tiles."""
    return problem.k % 8 == 0 and not problem.act_order and problem.m > 1


def _walking(problem: Problem, block_m: int, sms: int) -> SkinnyConfig | None:
    """Blocks that go through tiles, where sums are short or tiles are many: as many blocks as leave
    the fewest idle while the last ones end. As measured on an H200: 128 experts of 2048x768,
    int4g128, 64 tokens: 27.9 us where all blocks have two tiles, 38.7 where two thirds of them have
    one and the others two; 35.7 where none walks."""
    groups, tiles = -(-problem.k // _GROUP), -(-problem.n // 16)
    if block_m > 24 or groups > 16 or not walks(problem):
        return None
    width = min(8 if block_m == 8 else 4, tiles)
    warps = 1 if groups <= 8 else 4 if block_m == 8 else 2
    all_tiles, most = tiles_of(problem, block_m) * -(-tiles // width), 12 // warps
    if warps > 1 and all_tiles < 3 * most * sms:
        return None

    def busy(blocks: int) -> float:
        rounds = all_tiles / (blocks * sms)
        return rounds / math.ceil(rounds) if 1.0 < rounds < 6.0 else 1.0

    blocks = max(range(most, 8 // warps - 1, -1), key=lambda count: (round(busy(count), 2), count))
    stages = 2 if warps == 1 and blocks <= 9 and block_m <= 16 else 1
    at_once = _stage_tiles(problem, width)
    return SkinnyConfig(block_m, width, warps, 1, stages, at_once, 1, blocks, 1, 0, 0, walk=1)


def _few_rows(problem: Problem, groups: int, tiles: int, sms: int) -> SkinnyConfig:
    """Up to eight rows: warps for long sums, wide tiles for many rows. As measured on an H200."""
    if groups <= 2:
        width, warps, stages, blocks = 8, 1, 2, 3
    elif groups <= 8:
        width, warps, stages, blocks = 4, 2, 2, 2
    elif groups <= 16:
        width, warps, stages, blocks = 8, 4, 3, 3
    elif problem.experts_met * (tiles // 8) >= 6 * sms:  # two rounds of three blocks each
        width, warps, stages, blocks = 8, 4, 4, 3
    else:
        width, warps, stages, blocks = (8, 4, 4, 3) if problem.rows_of_expert > 1 else (4, 4, 3, 3)
    tiles_n = min(width, tiles)
    ahead = 1 + (groups > warps)
    at_once = _stage_tiles(problem, tiles_n)
    return SkinnyConfig(8, tiles_n, warps, 1, stages, at_once, ahead, blocks, 1, 0, 0)


def _some_rows(problem: Problem, block_m: int, groups: int, tiles: int) -> SkinnyConfig:
    """Nine to 32 rows: still a stream of weights, of which a tile with more columns decodes as few
    as one of eight rows does. Warps that multiply on their own scale sums, not weights."""
    warps = 1 if groups <= 2 else 2 if groups <= 8 else 4
    tiles_n = min(8 if block_m == 16 else 4, tiles)
    stages, blocks = (2, 3) if groups <= 8 else (4, 2)
    ahead = 1 + (groups > warps and block_m == 16)
    at_once = _stage_tiles(problem, tiles_n)
    return SkinnyConfig(block_m, tiles_n, warps, 1, stages, at_once, ahead, blocks, 1, 0, 0)


def _stage_tiles(problem: Problem, tiles_n: int) -> int:
    return 2 if tiles_n % 2 == 0 and problem.quant.weight.dtype.bits <= 4 else 1
