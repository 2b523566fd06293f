"""The default config of the family wgmma: a tile and a way to cut k by which the busiest
multiprocessor is done first. Which family serves is heuristics_cuda.py.

Costs are cycles of one multiprocessor, fitted to an H200 with cold weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

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
    (64, 1, 1, 2),
    (64, 2, 1, 2),
    (64, 2, 1, 1),
    (64, 3, 1, 1),
    (64, 4, 1, 1),
    (64, 2, 2, 1),
    (80, 2, 1, 1),
    (96, 2, 1, 1),
    (96, 3, 1, 1),
    (112, 2, 1, 1),
    (128, 1, 1, 2),
    (128, 1, 2, 2),
    (128, 2, 1, 1),
    (128, 3, 1, 1),
    (128, 2, 2, 1),
    (160, 3, 1, 1),
    (256, 2, 1, 1),
)
_STAGES = (14, *range(10, 2, -1))  # those of the search space, whose configs ours should be
_RASTER, _RASTER_MANY = 8, 16  # tiles of x that a wave goes through before the next rows of w
_STAGE_K = 64
_MOST_SUMS = 256  # of a tile, for each row of w
_LARGE_TILES_FROM = 512
_STORE_ROWS = 32  # of x, in a piece of the output
_FEW_STORES, _STAGES_BESIDE_STORES = 4, 4
_NEAR = 1.25
_LEAST_ODD, _FULL_WAVE = 80, 0.85
_LEAST_SHARE = 512  # columns of k that a block has

_SPLITS = (2, 4)
_FEW_SHARERS = 2.0  # runs of a tile for which meeting costs `meet`
_ROOM_OF_FOUR = 0.91  # part of the multiprocessors on which clusters of four find room
_FLOAT_DECODE = 1.5  # part of a step, and of a chain, of floats of few bits


@dataclass(frozen=True)
class WgmmaCosts:
    """Cycles of one multiprocessor of an H200, as `python -m benchmarks.heuristic` fits them.

    step, step_row      64 rows of w by 16 of k: dequantized, and multiplied by a row of x
    stage               a stage besides
    shallow             part of it besides with two stages in flight, less with more
    chain, chain_tile   a stage of one warpgroup, which waits for itself, and a tile of it
    read                bytes of weights and x a cycle, from L2
    block, next_tile    a launch besides, and each tile after the first
    shorter             part of it where the next launch finds room beside this one
    out                 8192 outputs
    meet, meet_out      blocks that share k through memory, and 8192 sums that they exchange
    cluster, cluster_out      the same in a cluster
    """

    step: float = 48.7
    step_row: float = 0.606
    stage: float = 15.0
    shallow: float = 0.725
    chain: float = 223.0
    chain_tile: float = 198.0
    read: float = 89.1
    block: float = 1696.0
    next_tile: float = 2448.0
    shorter: float = 0.709
    out: float = 769.0
    meet: float = 1401.0
    meet_out: float = 1620.0
    cluster: float = 1617.0
    cluster_out: float = 439.0


COSTS = WgmmaCosts()


def wgmma_default(problem: Problem, device: Device, m: int) -> WgmmaConfig | None:
    """The config that is best at about `m` rows of x and legal for `problem`, which has as many or
    more; None where there is none."""
    ranked = _ranked(problem.at(m), device)
    legal = (config for config in ranked if not config_violations(config, problem, device))
    return next(legal, None)


def wgmma_near(problem: Problem, device: Device) -> list[WgmmaConfig]:
    """Those of the default's choices that may be as fast, as the costs are wrong by some tenth; the
    likeliest first."""
    ranked = _ranked(problem, device)
    most = _NEAR * wgmma_cost(ranked[0], problem, device) if ranked else 0.0
    return [config for config in ranked if wgmma_cost(config, problem, device) <= most]


def _ranked(problem: Problem, device: Device) -> list[WgmmaConfig]:
    choices = dict.fromkeys(_choices(problem, device))
    return sorted(choices, key=lambda config: wgmma_cost(config, problem, device))


def _choices(problem: Problem, device: Device) -> Iterator[WgmmaConfig]:
    least = min(128, -(-problem.m // 2)) if problem.m > 64 else -(-3 * problem.m // 4)
    many, sms = problem.m > _RASTER * 128, device.sm_count or 1
    for block_m, warpgroups, tiles_n, blocks_per_sm in _TILES:
        if block_m < least and not _fills_a_wave(block_m, warpgroups * tiles_n, problem, sms):
            continue  # weights dequantized too often
        if block_m - 16 >= problem.m > 16 or (block_m == 160 and problem.m > 320):
            continue  # sixteen rows beyond m; more tiles than such a size pays for
        if block_m * tiles_n == _MOST_SUMS and tiles_n > 1 and problem.m > _LARGE_TILES_FROM:
            continue  # a tile of so many sums dequantizes less if it is one of 256 rows of x
        config = WgmmaConfig(
            block_m=block_m,
            warpgroups=warpgroups,
            tiles_n=tiles_n,
            cluster_n=1,
            split_k=1,
            num_stages=3,
            num_stores=1,
            raster_group_m=_RASTER_MANY if many and block_m <= 128 else _RASTER,
            blocks_per_sm=blocks_per_sm,
            stream_k=0,
            dependent_launch=1,
        )
        follows = wgmma_deal(config, problem.m, problem.n, problem.k, sms).whole > sms
        for stores in _stores(block_m) if follows and blocks_per_sm == 1 else (1,):
            deep = _deepest(replace(config, num_stores=stores), problem, device)
            if deep is None or (stores > 1 and deep.num_stages < _STAGES_BESIDE_STORES):
                continue
            yield deep
            streamed = replace(deep, stream_k=1)
            if wgmma_deal(streamed, problem.m, problem.n, problem.k, sms).runs:
                yield streamed
        for split_k in _SPLITS:
            deep = _deepest(replace(config, split_k=split_k), problem, device)
            if deep and problem.k >= split_k * _LEAST_SHARE and _in_one_wave(deep, problem, sms):
                yield deep


def _stores(block_m: int) -> tuple[int, ...]:
    """Pieces of the output in flight: one that all wait for, or some by the copy engine."""
    pieces = block_m // _STORE_ROWS if block_m % _STORE_ROWS == 0 else 1
    return tuple(sorted({1, min(pieces, _FEW_STORES), pieces}))


def _fills_a_wave(block_m: int, tiles_n: int, problem: Problem, sms: int) -> bool:
    """Whether tiles of an odd size fill one wave, where those of 128 rows of x may not."""
    tiles = -(-problem.m // block_m) * -(-problem.n // (64 * tiles_n))
    return block_m >= _LEAST_ODD and _FULL_WAVE * sms <= tiles <= sms


def _in_one_wave(config: WgmmaConfig, problem: Problem, sms: int) -> bool:
    """Whether all clusters that share k run at once: more blocks than that need no sharing."""
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, sms)
    return dealt.whole <= int(sms * config.blocks_per_sm / config.split_k)


def wgmma_cost(
    config: WgmmaConfig, problem: Problem, device: Device, costs: WgmmaCosts = COSTS
) -> float:
    """Cycles until the last block ends."""
    sms = device.sm_count or 1
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, sms)
    stages = -(-problem.k // 128) * 2
    waves = -(-dealt.whole // dealt.clusters)
    shares = dealt.runs // dealt.streamed if dealt.runs else 0
    many = waves * -(-stages // config.split_k) + (-(-stages // shares) if shares else 0)

    blocks = dealt.clusters * config.cluster_n * config.split_k
    rows = wgmma_block_rows(config)
    room = sms * (_ROOM_OF_FOUR if config.split_k == 4 else 1.0)
    together = config.blocks_per_sm if blocks > room else 1
    dtype = problem.quant.weight.dtype
    decode = 1.0 if dtype.is_integer or dtype.bits == 8 else _FLOAT_DECODE
    step = _longest(costs.step * decode, costs.step_row * config.block_m)
    multiply = rows // 16 * together * step + costs.stage
    chain = (costs.chain + costs.chain_tile * config.tiles_n) * decode
    bits = dtype.bits
    read = (config.block_m * _STAGE_K * 2 + rows * _STAGE_K * bits // 8) * together / costs.read
    stage = _longest(multiply, chain, read)
    stage *= 1.0 + costs.shallow / (config.num_stages - 1) ** 2

    outputs = config.block_m * rows * together / 8192
    cost = many * stage + costs.block * (costs.shorter if together < config.blocks_per_sm else 1)
    stored = 1 if config.num_stores > 1 else waves  # the others' stores hide behind products
    cost += costs.next_tile * max(0, waves - 1) + costs.out * stored * outputs
    if shares:
        cost += costs.meet * shares / _FEW_SHARERS + (costs.out + costs.meet_out) * outputs
    if config.split_k > 1:
        sent = outputs * (config.split_k - 1) / config.split_k
        cost += waves * (costs.cluster + costs.cluster_out * sent)
    return cost


def _longest(*cycles: float) -> float:
    """What overlaps takes as long as the longest of it, and a little more where others are near."""
    return float(sum(each**6 for each in cycles) ** (1 / 6))


def _deepest(config: WgmmaConfig, problem: Problem, device: Device) -> WgmmaConfig | None:
    """`config` with as many stages as its blocks find room for."""
    for stages in _STAGES:
        deep = replace(config, num_stages=stages)
        smem = wgmma_smem_bytes(deep, problem)
        if smem <= smem_per_block(device) and blocks_fit(
            device, deep.blocks_per_sm, wgmma_threads(deep), smem
        ):
            return deep
    return None
