"""The config that serves on a GPU where nothing was measured: legal for every m, n, k and GPU.

Measured on an H200 with cold weights, bf16; another GPU is what tuning is for. CPUs are
heuristics_cpu.py; tuned configs are tables.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from humming.dispatch.heuristics_mma import M_STEPS, mma_default
from humming.dispatch.heuristics_wgmma import wgmma_default, wgmma_near
from humming.dispatch.heuristics_wgmma8 import wgmma8_default, wgmma8_near
from humming.spec.config import DequantizeConfig, KernelConfig, ScaledMmConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT, cuda_group_size
from humming.spec.legality import config_violations, problem_violations
from humming.spec.legality.skinny import warpgroup_takes
from humming.spec.problem import M_END, Problem

BLOCK_M_STEPS = ((0, 1), (2, 8), (9, 16), (17, 24), (25, 32), (33, 24), (49, 32), (65, 0))
"""(first m, rows of x a pass) of each interval; 0 rows stand for the family dequantize.

Two passes of skinny cost less than torch's matmul on 16-bit weights alone, before any dequantizing.
"""

_FEW_ROWS = 32  # of x, for which the family skinny is as good as wgmma
_TORCH_ROWS = 385  # of x, from which torch's own product of fp8 is faster than ours
_COUNTABLE_ROWS = 1 << 24  # of x, up to which wgmma counts its tiles whatever n is, near enough
_RUNNERS_UP = 8
_STEPS = tuple(sorted({*(low for low, _ in BLOCK_M_STEPS), *M_STEPS, _COUNTABLE_ROWS}))
_MOST_ROWS = {9: 384, 10: 192, 11: 192}  # by major compute capability

_GROUP = 128
_PIECE = 1.0  # cost of reading and multiplying 16 rows of w by 128 of k, of int4: the unit
_PIECES = {1: 0.9, 2: 0.9, 3: 1.4, 5: 1.5, 6: 1.6, 7: 1.8, 8: 1.7}  # of integers of other widths
_FLOAT_PIECE = 1.7
_GROUP_COST = 1.0  # of a group besides, such as its barrier
_X_ROW_COST = 0.09  # of a row of x in a group
_CLUSTER_FACTOR = 1.13  # of meeting in a cluster, and of launching blocks by clusters
_SHORT = 128  # pieces that a multiprocessor reads in a kernel that is over soon
_LEAST_SHARE = 8  # groups that a block must have where a cluster shares k
_LARGE_CLUSTERS = 0.9  # part of the multiprocessors that clusters of four can occupy at once
_DEQUANTIZE = DequantizeConfig(warps=8, unroll=2, panel_n=0)


@dataclass(frozen=True)
class _Tile:
    """What a block has of n and k: rows of w, and how many blocks share its k."""

    tiles_n: int
    split_k: int
    groups: int  # of k, for the block
    waves: int  # blocks that a multiprocessor gets, one after another or at once


def heuristic(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` (its m counts) on the GPU `device`; see heuristics.py."""
    step, last = _step(problem.m)
    if problem.layout == CUDA_A8_LAYOUT:
        return _in_bytes(problem, device, step, last)
    if _FEW_ROWS < step < _COUNTABLE_ROWS and not problem_violations("wgmma", problem, device):
        many = wgmma_default(problem.at(last), device, min(last, 2 * step - 2))
        if many:
            return many
    block_m = [rows for low, rows in BLOCK_M_STEPS if low <= step][-1]
    mma = not problem_violations("mma", problem, device)
    if mma and step > _FEW_ROWS and block_m and device.compute_capability == (9, 0):
        one_pass = mma_default(problem, device, last)
        if one_pass:  # 26 to 31 us, of other formats, where two passes of skinny take 37 to 40
            return one_pass
    if block_m and not problem_violations("skinny", problem, device):
        for config in _skinny(problem, device, block_m):
            if not config_violations(config, problem, device):
                return config
    if mma and last <= _most_rows(device):
        return mma_default(problem, device, last) or _DEQUANTIZE
    return _DEQUANTIZE


def runners_up(problem: Problem, device: Device) -> list[KernelConfig]:
    """What may be as fast as the default at just this m, the likeliest first; see heuristics.py."""
    if not 0 < problem.m < _COUNTABLE_ROWS:
        return []
    near: list[KernelConfig] = []
    if problem.layout == CUDA_A8_LAYOUT:
        if not problem_violations("wgmma8", problem, device):
            near += wgmma8_near(problem, device)[:_RUNNERS_UP]
        if not problem_violations("scaled_mm", problem, device):
            near.insert(1, ScaledMmConfig(fast_sums=1))
    elif problem.m > _FEW_ROWS // 2 and not problem_violations("wgmma", problem, device):
        near += wgmma_near(problem, device)[:_RUNNERS_UP]
    return [config for config in near if not config_violations(config, problem, device)]


def _in_bytes(problem: Problem, device: Device, step: int, last: int) -> KernelConfig:
    """The same of products in 8 bits."""
    if step >= _TORCH_ROWS and not problem_violations("scaled_mm", problem, device):
        return ScaledMmConfig(fast_sums=1)
    if not problem_violations("wgmma8", problem, device):
        for rows in (last, step):  # there are more rows than blocks can count
            found = wgmma8_default(problem.at(rows), device, min(last, max(1, 2 * step - 2)))
            if found:
                return found
    return mma_default(problem, device, last) or _DEQUANTIZE


def heuristic_intervals(problem: Problem, device: Device) -> list[tuple[int, int, KernelConfig]]:
    """`(m_low, m_high, config)` over [0, 2**31) without gaps; neighbours differ."""
    intervals: list[tuple[int, int, KernelConfig]] = []
    for low, high in pairwise([*_STEPS, M_END]):
        config = heuristic(problem.at(low), device)
        if intervals and intervals[-1][2] == config:
            low = intervals.pop()[0]
        intervals.append((low, high, config))
    return intervals


def _step(m: int) -> tuple[int, int]:
    """The first and the last m of the interval in which `m` is."""
    at = bisect_right(_STEPS, m) - 1
    return _STEPS[at], (_STEPS[at + 1] if at + 1 < len(_STEPS) else M_END) - 1


def _most_rows(device: Device) -> int:
    """Rows of x up to which scaling weights on their way beats writing them down in 16 bits first.

    Above, torch's matmul gains more than that costs: by tensor cores that mma does not reach from
    compute capability 9.0 on, and elsewhere by little.
    """
    return _MOST_ROWS.get((device.compute_capability or (0, 0))[0], 2048)


def _skinny(problem: Problem, device: Device, block_m: int) -> Iterator[SkinnyConfig]:
    """Skinny configs from the best guess down to what every GPU can run."""
    capability = device.compute_capability or (0, 0)
    can_group = capability == (9, 0) and warpgroup_takes(problem)
    warpgroup = can_group and block_m > 16
    tile = _tile(problem, device, block_m, warpgroup)
    stored = problem.quant.weight.dtype
    costly = not stored.is_integer or stored.bits > 4  # codes to decode beside the products
    if can_group and block_m == 16 and (costly or tile.groups < 16 or tile.waves > 1):
        warpgroup, tile = True, _tile(problem, device, block_m, True)
    best = _wgmma(block_m, tile, costly) if warpgroup else _mma(block_m, tile, capability)
    if problem.quant.weight.dtype.name != "int4" or cuda_group_size(problem.quant.weight) != 128:
        best = _for_format(best, problem)
    if capability < (9, 0):
        best = replace(best, dependent_launch=0)
    if capability < (8, 0):
        best = _in_registers(replace(best, warps=min(best.warps, 8), blocks_per_sm=1))
    yield best
    for stages in (3, 2, 1):
        if stages < best.num_stages:
            yield replace(best, num_stages=stages, blocks_per_sm=1)
    small = _in_registers(replace(best, tiles_n=min(best.tiles_n, 4), x_stages=1, warpgroup=0))
    small = replace(small, blocks_per_sm=1)
    for warps in (8, 4, 2, 1):
        yield replace(small, warps=min(warps, best.warps))
    yield replace(small, warps=1, tiles_n=16 if problem.n > 1 << 16 else 1, split_k=1)


def _tile(problem: Problem, device: Device, block_m: int, warpgroup: bool) -> _Tile:
    """The tile by which the busiest multiprocessor has the least to do."""
    sms = device.sm_count or 1
    rows = 64 if warpgroup else 16
    row_tiles, groups = -(-problem.n // rows), -(-problem.k // _GROUP)
    # Registers: accumulators are tiles_n x block_m / 8 fragments, next to fragments of x.
    most = 7 if warpgroup else {1: 8, 8: 14, 16: 10, 24: 6, 32: 4}[block_m]
    if (device.compute_capability or (0, 0)) < (8, 0):  # weights are held in registers too
        most = {1: 7, 8: 6, 16: 5, 24: 3, 32: 2}[block_m]
        if block_m == 16 and not problem.quant.weight.dtype.is_integer:
            most = 3
    if block_m > 16 and 0 < cuda_group_size(problem.quant.weight) < 128:
        most -= 1  # sums of several groups, or shared products of x
        if not warpgroup and cuda_group_size(problem.quant.weight) <= 32:
            most = min(most, 3)
    if block_m <= 8 and cuda_group_size(problem.quant.weight) == 16:
        most = 2  # small blocks hide the latency of so many scales
    most = min(most, row_tiles)
    stored = problem.quant.weight.dtype
    piece = _PIECES.get(stored.bits, _PIECE) if stored.is_integer else _FLOAT_PIECE
    splits = [1]
    if (device.compute_capability or (0, 0)) >= (9, 0):
        splits = [1, 2, 4] if warpgroup else [1, 2]

    def cost(tiles_n: int, split_k: int) -> float:
        blocks = -(-row_tiles // tiles_n) * split_k
        room = sms * _LARGE_CLUSTERS if split_k > 2 else sms
        share = -(-groups // split_k)
        of_group = piece * tiles_n * (rows // 16) + _GROUP_COST + _X_ROW_COST * block_m
        waves = -(-blocks // max(1, int(room)))
        return waves * share * of_group * (_CLUSTER_FACTOR if split_k > 1 else 1)

    splits = [s for s in splits if s == 1 or groups >= s * _LEAST_SHARE]
    choices = [(t, s) for s in splits for t in range(1, most + 1)]
    tiles_n, split_k = min(choices, key=lambda choice: cost(*choice))
    waves = -(-(-(-row_tiles // tiles_n) * split_k) // sms)
    return _Tile(tiles_n, split_k, -(-groups // split_k), waves)


def _mma(block_m: int, tile: _Tile, capability: tuple[int, int]) -> SkinnyConfig:
    """Products of a warp: some groups of k for each warp, and enough weights in flight."""
    # A short kernel gains by finding room beside the one before it, which is about to end.
    short = block_m <= 8 and tile.waves * tile.groups * tile.tiles_n <= _SHORT
    warps = 8 if tile.groups > 8 else 4
    wide = tile.tiles_n > 12 and capability < (10, 0)  # where registers hold that
    if tile.groups >= 32 and tile.waves == 1 and not short and (block_m == 1 or wide):
        warps = 16
    even = tile.tiles_n % 2 == 0 and tile.tiles_n * warps <= 200  # else registers spill
    stages = 3 if even and (block_m <= 8 or warps == 16) else 4
    if warps == 16 and tile.tiles_n % 2:
        stages = 3
    groups_of_warp = -(-tile.groups // warps)
    config = SkinnyConfig(
        block_m=block_m,
        tiles_n=tile.tiles_n,
        warps=warps,
        split_k=tile.split_k,
        num_stages=min(stages, groups_of_warp * tile.tiles_n // (2 if even else 1)),
        stage_tiles=2 if even else 1,
        x_stages=1 if block_m > 16 else min(2, groups_of_warp),
        blocks_per_sm=2 if short else 1,
        dependent_launch=1,
        warpgroup=0,
        exact_codes=0,
    )
    # Registers hold eight row tiles, or seven beside two columns of fragments of x.
    held = tile.tiles_n <= (8 if block_m == 8 else 7)
    if held and 1 < block_m <= 16 and warps == 8 and not short:
        return _in_registers(config)
    return config


def _wgmma(block_m: int, tile: _Tile, costly: bool) -> SkinnyConfig:
    """Products of warpgroups: as many as registers allow, which `costly` codes need as well."""
    warps = 8
    if tile.tiles_n <= 2 and tile.groups >= 24:
        warps = 16 if tile.tiles_n == 1 else 12
    if 4 < tile.tiles_n < (7 if costly else 8) and tile.groups >= 16 and block_m <= 16:
        warps = 12  # sixteen are faster yet, and spill registers
    even = tile.tiles_n in (2, 4)  # six would spill
    return SkinnyConfig(
        block_m=block_m,
        tiles_n=tile.tiles_n,
        warps=warps,
        split_k=tile.split_k,
        num_stages=2 if even else (3 if warps > 8 else 4),
        stage_tiles=2 if even else 1,
        x_stages=3,
        blocks_per_sm=1,
        dependent_launch=1,
        warpgroup=1,
        exact_codes=0,
    )


def _for_format(config: SkinnyConfig, problem: Problem) -> SkinnyConfig:
    """`config` with a ring for codes of another width, or that need more registers to decode."""
    bits = problem.quant.weight.dtype.bits
    stages = config.num_stages or 4
    if config.warpgroup and bits <= 4:
        return config
    if bits > 4:
        return replace(config, num_stages=min(stages, 3), stage_tiles=1)
    if cuda_group_size(problem.quant.weight) == 16:
        config = replace(config, warps=min(config.warps, 8))
    many = config.block_m > 24 and 0 < cuda_group_size(problem.quant.weight) <= 32
    stage_tiles = 2 if config.tiles_n % 2 == 0 and not many else 1
    return replace(config, num_stages=min(stages, 4), stage_tiles=stage_tiles)


def _in_registers(config: SkinnyConfig) -> SkinnyConfig:
    """Without a ring of weights in shared memory."""
    return replace(config, num_stages=0, stage_tiles=1)
