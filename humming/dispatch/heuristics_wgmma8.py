"""The default config of the families that multiply bytes on Hopper: a tile and a way to cut k by
which the busiest multiprocessor is done first. Which family serves is heuristics_cuda.py.

Costs are cycles of one multiprocessor, fitted to an H200 with cold weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from humming.spec.config import Wgmma8Config
from humming.spec.device import Device
from humming.spec.legality import (
    config_violations,
    wgmma8_smem_bytes,
    wgmma_block_rows,
    wgmma_deal,
    wgmma_threads,
)
from humming.spec.legality.cuda import blocks_fit, smem_per_block
from humming.spec.legality.wgmma8 import needs_promotion
from humming.spec.problem import Problem

# block_m, warpgroups, tiles_n, cluster_n, blocks_per_sm
_TILES = (
    (16, 2, 1, 1, 1),
    (16, 2, 2, 1, 1),
    (16, 1, 1, 1, 2),
    (16, 2, 1, 1, 2),
    (32, 2, 1, 1, 1),
    (32, 1, 1, 1, 2),
    (32, 2, 1, 1, 2),
    (64, 2, 1, 1, 1),
    (64, 2, 2, 1, 1),
    (64, 2, 1, 1, 2),
    (96, 2, 1, 1, 1),
    (128, 2, 1, 1, 1),
    (128, 2, 2, 1, 1),
    (192, 3, 1, 1, 1),
    (256, 2, 1, 1, 1),
)
_MOST_STAGES = 20
_RASTER_ROWS = 2048  # of x, that a wave goes through before the next rows of w

_STEP, _STEP_ROW = 65.1, 1.66  # cycles of 64 rows of w by 128 of k, and of a row of x in it
_DECODE = 170.3  # of 64 rows of w by 128 of k, of codes that are put into bytes
_PROMOTE_ROW = 1.67  # of a row of x, where sums are promoted
_CHAIN = 481.7  # of a unit of one warpgroup, which waits for itself
_READ = 49.4  # bytes of x and weights a cycle, from L2
_MEMORY = 21.6  # bytes of weights a cycle, from memory, of each multiprocessor
_BLOCK, _NEXT = 3058.0, 2886.0  # of a launch besides, and of each tile after the first
_OUT = 682.8  # of 8192 outputs
_MEET, _MEET_OUT = 3776.0, 1881.0  # of blocks that share k, and of 8192 sums that they exchange


def wgmma8_default(problem: Problem, device: Device, m: int) -> Wgmma8Config | None:
    """The config that is best at about `m` rows of x and legal for `problem`, which has as many or
    more; None where there is none."""
    at = problem.at(max(m, 1))
    choices = sorted(_choices(at, device), key=lambda config: _cost(config, at, device))
    legal = (config for config in choices if not config_violations(config, problem, device))
    return next(legal, None)


def _choices(problem: Problem, device: Device) -> Iterator[Wgmma8Config]:
    least = min(128, -(-problem.m // 2)) if problem.m > 64 else -(-3 * problem.m // 4)
    for block_m, warpgroups, tiles_n, cluster_n, blocks_per_sm in _TILES:
        if block_m < least:
            continue  # weights read too often
        config = Wgmma8Config(
            block_m=block_m,
            warpgroups=warpgroups,
            tiles_n=tiles_n,
            cluster_n=cluster_n,
            num_stages=2,
            raster_group_m=min(64, max(8, _RASTER_ROWS // block_m)),
            blocks_per_sm=blocks_per_sm,
            stream_k=0,
            promote=int(needs_promotion(problem)),
            dependent_launch=1,
        )
        deep = deepest(config, problem, device)
        if deep:
            yield deep
            yield replace(deep, stream_k=1)


def _cost(config: Wgmma8Config, problem: Problem, device: Device) -> float:
    """Cycles until the last block ends."""
    sms = device.sm_count or 1
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, sms)
    units = -(-problem.k // 128)
    waves = -(-dealt.whole // dealt.clusters)
    shares = dealt.runs // dealt.streamed if dealt.runs else 0
    many = waves * units + (-(-units // shares) if shares else 0)

    bits = problem.quant.weight.dtype.bits
    rows = wgmma_block_rows(config)
    together = config.blocks_per_sm if dealt.clusters * config.cluster_n > sms else 1
    row = _STEP_ROW + (_PROMOTE_ROW if config.promote else 0.0)
    tile = _STEP + row * config.block_m + (0.0 if bits == 8 else _DECODE)
    multiply = rows // 64 * together * tile
    chain = _CHAIN + row * config.block_m * config.tiles_n
    of_weights = rows * 16 * bits * together
    read = (config.block_m * 128 / config.cluster_n * together + of_weights) / _READ
    memory = of_weights / _MEMORY if problem.m <= config.block_m else 0.0
    unit = float((multiply**6 + chain**6 + read**6 + memory**6) ** (1 / 6))

    outputs = config.block_m * rows * together / 8192
    cost = many * unit + _BLOCK + _NEXT * max(0, waves - 1) + _OUT * waves * outputs
    if shares:
        cost += _MEET + (_OUT + _MEET_OUT) * outputs
    return cost


def deepest(config: Wgmma8Config, problem: Problem, device: Device) -> Wgmma8Config | None:
    """`config` with as many stages as its blocks find room for."""
    turns = config.k_warpgroups
    for stages in range(_MOST_STAGES // turns * turns, turns, -turns):
        deep = replace(config, num_stages=stages)
        smem = wgmma8_smem_bytes(deep, problem)
        if smem <= smem_per_block(device) and blocks_fit(
            device, deep.blocks_per_sm, wgmma_threads(deep), smem
        ):
            return deep
    return None
