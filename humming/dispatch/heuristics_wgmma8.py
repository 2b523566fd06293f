"""The default config of the families that multiply bytes on Hopper: a tile and a way to cut k by
which the busiest multiprocessor is done first. Which family serves is heuristics_cuda.py.

Costs are cycles of one multiprocessor, fitted to an H200 with cold weights: to a sweep
(benchmarks/results/h200_bytes_configs.json) and to times of defaults that take turns or share k.
"""

from __future__ import annotations

from bisect import bisect_left
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

# block_m, warpgroups, tiles_n, blocks_per_sm, k_warpgroups, split_k
_TILES = (
    (16, 2, 1, 1, 1, 1),
    (16, 2, 1, 2, 1, 1),
    (16, 4, 1, 1, 4, 1),
    (16, 4, 1, 1, 2, 1),
    (16, 4, 2, 1, 4, 1),
    (16, 2, 1, 2, 2, 1),
    (16, 2, 2, 2, 2, 1),
    (16, 4, 1, 1, 4, 2),
    (16, 4, 1, 1, 2, 2),
    (16, 4, 1, 1, 4, 4),
    (32, 2, 1, 1, 1, 1),
    (32, 2, 1, 2, 1, 1),
    (32, 4, 1, 1, 4, 1),
    (32, 4, 1, 1, 2, 1),
    (32, 2, 1, 2, 2, 1),
    (32, 4, 1, 1, 4, 2),
    (32, 4, 1, 1, 2, 2),
    (64, 2, 1, 1, 1, 1),
    (64, 2, 2, 1, 1, 1),
    (64, 2, 1, 2, 1, 1),
    (64, 4, 1, 1, 4, 1),
    (64, 4, 1, 1, 2, 1),
    (64, 4, 1, 1, 2, 2),
    (64, 2, 1, 1, 1, 2),
    (96, 4, 1, 1, 2, 1),
    (128, 2, 1, 1, 1, 1),
    (128, 2, 2, 1, 1, 1),
    (128, 2, 1, 1, 1, 2),
    (192, 3, 1, 1, 1, 1),
    (256, 2, 1, 1, 1, 1),
    (256, 2, 1, 1, 1, 2),
)
_MOST_STAGES = 20
_RASTER, _RASTER_ROWS = 8, 2048  # tiles, and rows of x, of a wave before the next rows of w
_MOST_OF_FOUR = 32  # sums of a row of w, beyond which four warpgroups in turns spill registers

_STEP = 61.3  # cycles of 64 rows of w by 128 of k
_ROW, _ROW_OF_BYTES = 1.29, 2.04  # of a row of x in it; where both operands are read as they lie
_DECODE, _DECODE_SCALED = 177.0, 237.0  # besides, of codes that are put into bytes
_PROMOTE_ROW = 1.67  # of a row of x, where sums are promoted
_CHAIN, _CHAIN_SCALED = 325.0, 332.0  # of a unit of one warpgroup, which waits for itself
_READ = 50.6  # bytes of x and weights a cycle, from L2
_MEMORY = 19.2  # bytes of weights a cycle, from memory, of each multiprocessor
_BLOCK, _NEXT = 3231.0, 1090.0  # of a launch besides, and of each tile after the first
_OUT = 1481.0  # of 8192 outputs
_MEET, _MEET_OUT = 3371.0, 1008.0  # of blocks that share k, and of 8192 sums that they exchange
_SEND, _SEND_OUT = 1010.0, 1036.0  # of blocks that share k in a cluster, and of 8192 sums
_TURN_OUT = 50.0  # of 8192 sums of a warpgroup that takes turns
_MOST_OF_FP8 = 128  # rows of x, of fp8 by fp8


def wgmma8_default(problem: Problem, device: Device, m: int) -> Wgmma8Config | None:
    """The config that is best at about `m` rows of x and legal for `problem`, which has as many or
    more; None where there is none."""
    ranked = (c for c in wgmma8_near(problem.at(max(m, 1)), device) if not _spills(c))
    legal = (config for config in ranked if not config_violations(config, problem, device))
    return next(legal, None)


def wgmma8_near(problem: Problem, device: Device) -> list[Wgmma8Config]:
    """Configs for just this m, the best first; some may not be legal."""
    return sorted(_choices(problem, device), key=lambda config: _cost(config, problem, device))


def _spills(config: Wgmma8Config) -> bool:
    """Whether registers are laid aside between tiles: what may pay, and is for a tuner to find."""
    return config.k_warpgroups == 4 and config.block_m * config.tiles_n > _MOST_OF_FOUR


def _choices(problem: Problem, device: Device) -> Iterator[Wgmma8Config]:
    promote = needs_promotion(problem)
    least = min(128, -(-problem.m // 2)) if problem.m > 64 else -(-3 * problem.m // 4)
    for block_m, warpgroups, tiles_n, blocks_per_sm, turns, split_k in _TILES:
        if block_m < least or block_m >= max(17, 2 * problem.m):
            continue  # weights read too often; half of the rows beyond m
        if block_m > _MOST_OF_FP8 and problem.quant.weight.dtype.name == "fp8e4m3" and not promote:
            continue  # slower at each m that was measured
        many = problem.m > _RASTER * block_m
        config = Wgmma8Config(
            block_m=block_m,
            warpgroups=warpgroups,
            tiles_n=tiles_n,
            cluster_n=1,
            num_stages=2,
            raster_group_m=min(64, max(_RASTER, _RASTER_ROWS // block_m)) if many else _RASTER,
            blocks_per_sm=blocks_per_sm,
            stream_k=0,
            promote=int(promote),
            dependent_launch=1,
            k_warpgroups=turns,
            split_k=split_k,
        )
        deep = deepest(config, problem, device)
        if deep:
            yield deep
            cut, sms = replace(deep, stream_k=1), device.sm_count or 1
            if split_k == 1 and wgmma_deal(cut, problem.m, problem.n, problem.k, sms).runs:
                yield cut


def _cost(config: Wgmma8Config, problem: Problem, device: Device) -> float:
    """Cycles until the last block ends."""
    sms = device.sm_count or 1
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, sms)
    units = -(-problem.k // 128)
    waves = -(-dealt.whole // dealt.clusters)
    shares = dealt.runs // dealt.streamed if dealt.runs else 0
    many = waves * -(-units // config.split_k) + (-(-units // shares) if shares else 0)

    blocks = dealt.clusters * config.cluster_n * config.split_k
    together = min(config.blocks_per_sm, -(-blocks // sms))
    unit = _unit_cost(config, problem, together, min(1.0, blocks / (sms * together)))
    outputs = config.block_m * wgmma_block_rows(config) * together / 8192
    cost = many * unit + _BLOCK + _NEXT * max(0, waves - 1)
    cost += _OUT * waves * outputs / config.split_k
    if shares:
        cost += _MEET + (_OUT + _MEET_OUT) * outputs
    if config.split_k > 1:
        cost += waves * (_SEND + _SEND_OUT * outputs)
    return cost + waves * _TURN_OUT * (config.k_warpgroups - 1) * outputs


def _unit_cost(config: Wgmma8Config, problem: Problem, together: int, busy: float) -> float:
    """The same of a unit of k of the blocks that are on a multiprocessor `together`, where a part
    of all, `busy`, has such."""
    stored, rows = problem.quant.weight, wgmma_block_rows(config)
    bits, scaled = stored.dtype.bits, bool(stored.scale_dtype)
    row = _ROW_OF_BYTES if bits == 8 else _ROW
    row += _PROMOTE_ROW if config.promote else 0.0
    decode = 0.0 if bits == 8 else _DECODE_SCALED if scaled else _DECODE
    tile = _STEP + row * config.block_m + decode
    multiply = rows // 64 * together * tile
    chain = _CHAIN + (_CHAIN_SCALED if scaled else 0.0) + row * config.block_m * config.tiles_n
    chain /= config.k_warpgroups
    of_weights = rows * (16 * bits + (8 if scaled else 0)) * together
    read = (config.block_m * 128 / config.cluster_n * together + of_weights) / _READ
    memory = of_weights * busy / _MEMORY if problem.m <= config.block_m else 0.0
    return float((multiply**6 + chain**6 + read**6 + memory**6) ** (1 / 6))


def deepest(config: Wgmma8Config, problem: Problem, device: Device) -> Wgmma8Config | None:
    """`config` with as many stages as its blocks find room for."""
    turns = config.k_warpgroups

    def fits(stages: int) -> bool:
        smem = wgmma8_smem_bytes(replace(config, num_stages=stages), problem)
        return smem <= smem_per_block(device) and blocks_fit(
            device, config.blocks_per_sm, wgmma_threads(config), smem
        )

    counts = range(2 * turns, _MOST_STAGES + 1, turns)
    fitting = bisect_left(counts, True, key=lambda stages: not fits(stages))
    return replace(config, num_stages=counts[fitting - 1]) if fitting else None
