"""The default config of the family mma: a tile and a share of k by which the busiest multiprocessor
has the least to do. Which family serves is heuristics_cuda.py.

Costs are cycles of one multiprocessor, fitted to an H200; other GPUs differ by a factor that all
configs share, near enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from humming.spec.carriers import carrier
from humming.spec.config import MmaConfig
from humming.spec.device import Device
from humming.spec.invariance import Order, sum_order
from humming.spec.legality import config_violations, mma_smem_bytes
from humming.spec.legality.cuda import blocks_fit, smem_per_block
from humming.spec.legality.mma_bytes import multiplies_codes, promoted_columns
from humming.spec.problem import Problem

M_STEPS = (33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049)
"""Where intervals of m begin for which the choice is made anew, for their last m."""

# block_m, block_n, block_k, warps_m, warps_n, warps_k, blocks_per_sm
_Tile = tuple[int, int, int, int, int, int, int]
_TILES: tuple[_Tile, ...] = (
    (32, 128, 128, 1, 4, 2, 1),
    (32, 64, 256, 1, 2, 4, 1),
    (48, 128, 128, 1, 4, 2, 1),
    (48, 64, 256, 1, 2, 4, 1),
    (64, 128, 128, 1, 4, 2, 1),
    (64, 64, 256, 1, 2, 4, 1),
    (64, 64, 128, 1, 2, 2, 2),
    (64, 256, 64, 1, 8, 1, 1),
    (96, 128, 128, 1, 4, 2, 1),
    (128, 64, 128, 1, 2, 2, 2),
    (128, 128, 128, 1, 4, 2, 1),
    (128, 128, 64, 1, 4, 1, 2),
    (128, 256, 64, 1, 8, 1, 1),
    (128, 128, 64, 2, 4, 1, 1),
    (128, 64, 64, 2, 2, 1, 2),
    (64, 64, 64, 2, 2, 1, 2),
    (64, 64, 64, 2, 2, 1, 1),
    (32, 64, 64, 1, 2, 1, 1),
)
# Where codes are multiplied: of 8 bits, and of 4.
_BYTES_TILES: tuple[_Tile, ...] = (
    (16, 64, 256, 1, 2, 2, 2),
    (16, 128, 256, 1, 4, 2, 1),
    (32, 64, 256, 1, 2, 2, 2),
    (32, 128, 256, 1, 4, 2, 1),
    (48, 64, 256, 1, 4, 2, 1),
    (64, 64, 256, 1, 4, 2, 1),
    (64, 128, 128, 1, 8, 1, 1),
    (64, 128, 128, 2, 4, 1, 1),
    (64, 64, 128, 2, 2, 1, 2),
    (128, 64, 128, 2, 4, 1, 1),
    (128, 128, 128, 2, 4, 1, 1),
    (32, 64, 128, 1, 4, 1, 1),
)
_NARROW_TILES: tuple[_Tile, ...] = (
    (16, 64, 256, 1, 4, 1, 2),
    (32, 64, 256, 1, 4, 1, 2),
    (64, 128, 256, 1, 8, 1, 1),
    (64, 64, 256, 2, 2, 1, 2),
    (128, 128, 256, 2, 4, 1, 1),
)
_SPLITS = (1, 2, 3, 4, 6, 8)
_MOST_STAGES = 6
_MOST_COUNTED = 8192  # rows, beyond which a choice stays as it is

_PRODUCT = 1.6  # cycles of 16 rows of w by 8 of x by 16 of k
_DECODE, _DECODE_COLUMNS = 0.2, 2.4  # part of it besides, and that over a warp's columns
_BYTES_DECODE, _ROWS_DECODE = 1.0, 0.1  # over columns, of codes put into bytes, or in rows
_PROMOTE = 0.15  # part of it besides, of sums of 128 columns that become fp32
_EMULATED = 2.6  # times as long, of fp8 where tensor cores know it as wgmma or tcgen05 alone
_STAGE = 60.0  # of a stage besides
_SHALLOW = 0.3  # part of it besides with one stage in flight, less with more
_READ, _READ_X = 17.0, 60.0  # bytes of weights a cycle, and of codes of x
_BLOCK = 4000.0  # of a block besides
_MEET = 1500.0  # of adding up in a cluster
_ADD = 4000.0  # of adding up by a second kernel
_LARGE_CLUSTERS = 0.9  # part of the multiprocessors that clusters of more than two can occupy


@dataclass(frozen=True)
class _Choice:
    cost: float
    config: MmaConfig


def mma_default(problem: Problem, device: Device, m: int) -> MmaConfig | None:
    """The config for `problem` at about `m` rows of x; None where no tile is legal on `device`."""
    choices = sorted(_choices(problem.at(m), device), key=lambda choice: choice.cost)
    legal = (c.config for c in choices if not config_violations(c.config, problem, device))
    return next(legal, None)


def mma_default_of_order(
    problem: Problem, device: Device, m: int, order: Order | None
) -> MmaConfig | None:
    """The same among configs that add up in `order`, or in any that `m` does not change."""
    choices = sorted(_choices(problem.at(min(m, _MOST_COUNTED)), device), key=lambda c: c.cost)
    return next(
        (
            choice.config
            for choice in choices
            if (sum_order(choice.config) == order if order else sum_order(choice.config))
            and not config_violations(choice.config, problem, device)
        ),
        None,
    )


def _tiles(problem: Problem) -> Iterator[tuple[_Tile, int]]:
    """Tiles that may be best for `problem`, and whether they are for products of 4 bits."""
    in_codes = multiplies_codes(problem)
    for tile in _BYTES_TILES if in_codes else _TILES:
        yield tile, 0
    if in_codes and problem.quant.weight.dtype.bits == 4:
        for tile in _NARROW_TILES:
            yield tile, 1


def _choices(problem: Problem, device: Device) -> Iterator[_Choice]:
    clusters = (device.compute_capability or (0, 0)) >= (9, 0)
    for tile, narrow in _tiles(problem):
        for split_k in _SPLITS:
            config = MmaConfig(
                *tile[:6],
                num_stages=2,
                split_k=split_k,
                cluster=int(clusters and split_k > 1),
                stream_k=0,
                raster_group_m=8,
                blocks_per_sm=tile[6],
                dependent_launch=int(clusters),
                narrow=narrow,
            )
            deep = _deepest(config, problem, device)
            if deep and (split_k == 1 or problem.k >= 3 * split_k * config.block_k):
                yield _Choice(_cost(deep, problem, device), deep)


def _cost(config: MmaConfig, problem: Problem, device: Device) -> float:
    """Cycles until the last block ends."""
    products = config.block_m // 8 * (config.block_n // 16) * _steps(config, problem, device)
    read = config.block_n * config.block_k * problem.quant.weight.dtype.bits / 8 / _READ
    if multiplies_codes(problem):
        read += config.block_m * config.block_k / _READ_X
    shallow = 1 + _SHALLOW / (config.num_stages - 1)
    stage = max(products * _PRODUCT * _decode(config, problem), read) * shallow + _STAGE
    tiles = -(-problem.m // config.block_m) * -(-problem.n // config.block_n)
    room = (device.sm_count or 1) * config.blocks_per_sm
    if config.cluster and config.split_k > 2:
        room = max(1, int(room * _LARGE_CLUSTERS))
    waves = -(-tiles * config.split_k // room)
    stages = -((-problem.k // config.block_k) // config.split_k)
    whole = waves * (stages * stage * config.blocks_per_sm + _BLOCK)
    if config.split_k > 1:
        whole += _MEET if config.cluster else _ADD
    return whole


def _steps(config: MmaConfig, problem: Problem, device: Device) -> float:
    """Products along a stage's k, in units of one of 16 bits."""
    if not multiplies_codes(problem):
        return config.block_k / 16
    emulated = (9, 0) <= (device.compute_capability or (0, 0)) < (12, 0)
    steps = config.block_k / (64 if config.narrow else 32)
    return steps * (_EMULATED if emulated and carrier(problem.format) != "int8" else 1)


def _decode(config: MmaConfig, problem: Problem) -> float:
    """Times as long as products alone: with what is done to codes, and to sums."""
    columns = config.block_m // 8 // config.warps_m
    if not multiplies_codes(problem):
        return 1 + _DECODE + _DECODE_COLUMNS / columns
    in_rows = problem.quant.weight.dtype.bits == 8 or config.narrow
    promoted = promoted_columns(problem, config.narrow)
    decode = 1 + (_ROWS_DECODE if in_rows else _BYTES_DECODE) / columns + _ROWS_DECODE
    return decode + (_PROMOTE * 128 / promoted if promoted else 0)


def _deepest(config: MmaConfig, problem: Problem, device: Device) -> MmaConfig | None:
    """`config` with as many stages as its blocks find room for."""
    for stages in range(_MOST_STAGES, 1, -1):
        deep = replace(config, num_stages=stages)
        smem = mma_smem_bytes(deep, problem)
        if smem <= smem_per_block(device) and blocks_fit(
            device, deep.blocks_per_sm, deep.warps * 32, smem
        ):
            return deep
    return None
