"""The default config of the family wgmma: a tile and a way to cut k by which the busiest
multiprocessor is done first. Which family serves is heuristics_cuda.py.

Costs are cycles of one multiprocessor, fitted to an H200 with cold weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from humming.spec.config import WgmmaConfig
from humming.spec.device import Device
from humming.spec.legality import (
    config_violations,
    wgmma_block_rows,
    wgmma_deal,
    wgmma_smem_bytes,
    wgmma_threads,
)
from humming.spec.legality.cuda import blocks_fit, smem_per_block
from humming.spec.problem import Problem

# block_m, warpgroups, tiles_n, blocks_per_sm
_TILES = (
    (32, 1, 2, 2),
    (32, 2, 1, 2),
    (32, 4, 1, 1),
    (48, 3, 1, 1),
    (64, 2, 1, 2),
    (64, 2, 1, 1),
    (64, 3, 1, 1),
    (64, 4, 1, 1),
    (64, 2, 2, 1),
    (96, 3, 1, 1),
    (128, 1, 1, 2),
    (128, 1, 2, 2),
    (128, 2, 1, 1),
    (128, 3, 1, 1),
    (128, 2, 2, 1),
    (160, 3, 1, 1),
    (256, 2, 1, 1),
)
_MOST_STAGES = 14
_RASTER_ROWS = 2048  # of x, that a wave goes through before the next rows of w
_STAGE_K = 64

_STEP, _STEP_ROW = 22.0, 0.294  # cycles of 64 rows of w by 16 of k, and of a row of x in it
_STAGE = 138.0  # of a stage besides
_CHAIN, _CHAIN_TILE = 184.0, 225.0  # of a stage of one warpgroup, which waits for itself; of a tile
_READ = 34.0  # bytes of x and weights a cycle, from L2
_BLOCK, _NEXT = 3850.0, 2760.0  # of a launch besides, and of each tile after the first
_SHORTER = 0.7  # of it where the next launch finds room beside this one
_OUT = 643.0  # of 8192 outputs
_MEET, _MEET_OUT = 1500.0, 4800.0  # of blocks that share k, and of 8192 sums that they exchange


def wgmma_default(problem: Problem, device: Device, m: int) -> WgmmaConfig | None:
    """The config that is best at about `m` rows of x and legal for `problem`, which has as many or
    more; None where there is none."""
    at = problem.at(m)
    choices = sorted(_choices(at, device), key=lambda config: _cost(config, at, device))
    legal = (config for config in choices if not config_violations(config, problem, device))
    return next(legal, None)


def _choices(problem: Problem, device: Device) -> Iterator[WgmmaConfig]:
    least = min(128, -(-problem.m // 2)) if problem.m > 64 else -(-3 * problem.m // 4)
    for block_m, warpgroups, tiles_n, blocks_per_sm in _TILES:
        if block_m < least or (block_m == 160 and problem.m > 320):
            continue  # weights dequantized too often; more tiles than such a size pays for
        config = WgmmaConfig(
            block_m=block_m,
            warpgroups=warpgroups,
            tiles_n=tiles_n,
            cluster_n=1,
            split_k=1,
            num_stages=3,
            raster_group_m=max(8, _RASTER_ROWS // block_m),
            blocks_per_sm=blocks_per_sm,
            stream_k=0,
            dependent_launch=1,
        )
        deep = _deepest(config, problem, device)
        if deep:
            yield deep
            yield replace(deep, stream_k=1)


def _cost(config: WgmmaConfig, problem: Problem, device: Device) -> float:
    """Cycles until the last block ends."""
    sms = device.sm_count or 1
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, sms)
    stages = -(-problem.k // 128) * 2
    waves = -(-dealt.whole // dealt.clusters)
    shares = dealt.runs // dealt.streamed if dealt.runs else 0
    many = waves * stages + (-(-stages // shares) if shares else 0)

    rows, together = wgmma_block_rows(config), config.blocks_per_sm if dealt.clusters > sms else 1
    multiply = rows // 16 * together * (_STEP + _STEP_ROW * config.block_m) + _STAGE
    chain = _CHAIN + _CHAIN_TILE * config.tiles_n
    bits = problem.quant.weight.dtype.bits
    read = (config.block_m * _STAGE_K * 2 + rows * _STAGE_K * bits // 8) * together / _READ
    stage = float((multiply**6 + chain**6 + read**6) ** (1 / 6))

    outputs = config.block_m * rows * together / 8192
    cost = many * stage + _BLOCK * (_SHORTER if config.blocks_per_sm > 1 else 1)
    cost += _NEXT * max(0, waves - 1) + _OUT * waves * outputs
    if shares:
        cost += _MEET + (_OUT + _MEET_OUT) * outputs
    return cost


def _deepest(config: WgmmaConfig, problem: Problem, device: Device) -> WgmmaConfig | None:
    """`config` with as many stages as its blocks find room for."""
    for stages in range(_MOST_STAGES, 2, -1):
        deep = replace(config, num_stages=stages)
        smem = wgmma_smem_bytes(deep, problem)
        if smem <= smem_per_block(device) and blocks_fit(
            device, deep.blocks_per_sm, wgmma_threads(deep), smem
        ):
            return deep
    return None
