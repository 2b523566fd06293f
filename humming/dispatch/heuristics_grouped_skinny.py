"""The config of a GPU's grouped kernels of the family skinny where nothing was measured: for
experts of few rows each. Which family serves is heuristics_grouped.py."""

from __future__ import annotations

import math
from dataclasses import replace

from humming.dispatch.expert_tiles import tiles_of
from humming.spec.config import KernelConfig, MmaConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

_GROUP = 128
_SMS = 132  # where a device does not say
_LEAST_WARPS, _MOST_WARPS = 8, 12
"""Of blocks that walk, on a multiprocessor."""


def fitted(config: KernelConfig, device: Device) -> KernelConfig:
    """`config` without what this GPU lacks."""
    capability = device.compute_capability or (0, 0)
    if capability < (9, 0) and isinstance(config, (SkinnyConfig, MmaConfig)):
        config = replace(config, dependent_launch=0)
    if capability < (8, 0) and isinstance(config, SkinnyConfig):  # registers hold weights too
        tiles_n = min(config.tiles_n, 4 if config.block_m <= 8 else 2)
        config = replace(config, tiles_n=tiles_n, num_stages=0, stage_tiles=1, blocks_per_sm=1)
    return config


def skinny(problem: Problem, rows: int, device: Device) -> list[KernelConfig]:
    """Configs for `rows` of a busy expert, 32 at the most, the best first: blocks small enough that
    several share a multiprocessor, so that while one begins or ends another reads. Those of short
    sums walk."""
    sms = device.sm_count or _SMS
    block_m = next(size for size in (1, 8, 16, 24, 32) if rows <= size)
    groups, tiles = -(-problem.k // _GROUP), -(-problem.n // 16)
    most = max(w for w in (1, 2, 4, 8) if w <= max(1, groups))
    if rows == 1:
        first = _one_row(problem, groups, tiles, sms)
    elif walking := _walking(problem, block_m, device):
        first = walking
    elif block_m == 8:
        first = _few_rows(problem, groups, tiles, sms)
    else:
        first = _some_rows(problem, block_m, groups, tiles)
    plain = SkinnyConfig(block_m, min(4, tiles), most, 1, 3, 1, 1, 1, 1, 0, 0)
    small = replace(plain, tiles_n=min(2, tiles), num_stages=0)
    fewer = range(first.blocks_per_sm, 0, -1)
    choices: list[KernelConfig] = [*(replace(first, blocks_per_sm=b) for b in fewer), plain]
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


def _walking(problem: Problem, block_m: int, device: Device) -> SkinnyConfig | None:
    """Blocks that go through tiles, where sums are short or tiles are many: as many as leave few
    idle while the last ones end; none where a multiprocessor has too few warps of them.

    As measured on an H200, of 128 experts of 2048x768, int4g128, 64 tokens, about 2050
    tiles: `8x8 w1 d2x2 b8`, two tiles each, 27.9 us; `8x8 w1 d1x2 b12`, one or two, 38.7; the best
    that does not walk 35.7."""
    groups, tiles = -(-problem.k // _GROUP), -(-problem.n // 16)
    if block_m > 24 or groups > 16 or not walks(problem):
        return None
    width = min(8 if block_m == 8 else 4, tiles)
    warps = 1 if groups <= 8 else 4 if block_m == 8 else 2
    all_tiles, sms = tiles_of(problem, block_m) * -(-tiles // width), device.sm_count or _SMS
    if warps > 1 and all_tiles < 3 * _MOST_WARPS // warps * sms:
        return None

    def busy(config: SkinnyConfig) -> float:
        """Of its blocks, in the mean; in many rounds they end apart anyhow."""
        rounds = all_tiles / (config.blocks_per_sm * sms)
        idle = 1.0 - rounds / max(1.0, math.ceil(rounds))
        return round(1.0 - idle * min(1.0, 4.0 / rounds), 1) if rounds > 1.0 else 1.0

    at_once = _stage_tiles(problem, width)
    found = []
    for blocks in range(_MOST_WARPS // warps, _LEAST_WARPS // warps - 1, -1):
        deep = warps == 1 and blocks <= 9 and block_m <= 16
        for stages in (2, 1) if deep else (1,):
            one = SkinnyConfig(block_m, width, warps, 1, stages, at_once, 1, blocks, 1, 0, 0, 1)
            if not config_violations(fitted(one, device), problem, device):
                found.append(one)
                break
    return max(found, key=busy, default=None)  # of equals the one with most blocks


def _few_rows(problem: Problem, groups: int, tiles: int, sms: int) -> SkinnyConfig:
    """Up to eight rows: warps for long sums, wide tiles for many rows. As measured on an H200."""
    if groups <= 2:
        width, warps, stages, blocks = 8, 1, 2, 3
    elif groups <= 8:
        width, warps, stages, blocks = 4, 2, 2, 2
    elif groups <= 16:
        width, warps, stages, blocks = 8, 4, 3, 3
    elif problem.rows_of_expert > 1 or problem.experts_met * (tiles // 8) >= 6 * sms:  # two rounds
        width, warps, stages, blocks = 8, 4, 4, 3
    else:
        width, warps, stages, blocks = 4, 4, 3, 3
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
