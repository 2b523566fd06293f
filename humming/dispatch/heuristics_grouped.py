"""The config of a GPU's grouped kernels where nothing was measured: legal for every mixture of
experts. CPUs, and where intervals of m begin, are heuristics_experts.py; few rows an expert are
heuristics_grouped_skinny.py."""

from __future__ import annotations

import math

from humming.dispatch.expert_tiles import cheapest
from humming.dispatch.heuristics_grouped_skinny import fitted, skinny
from humming.dispatch.heuristics_wgmma8 import deepest
from humming.spec.carriers import carrier
from humming.spec.config import KernelConfig, MmaConfig, Wgmma8Config, WgmmaConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations, problem_violations
from humming.spec.legality.wgmma8 import needs_promotion
from humming.spec.problem import Problem

_FEW_ROWS = 20  # of an expert, for which one stream of its weights is all that counts
_FEW_ROWS_BESIDE_WGMMA = 12
"""At 16, 128 experts of 1536x2048, int4g128, take 87 us by wgmma on an H200, 93 by skinny."""
_SPREAD = 1.5  # standard deviations of rows that a tile should hold
_PLAIN = MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 1)
"""What every GPU runs of every problem that the family takes."""


def grouped(problem: Problem, device: Device) -> KernelConfig:
    """The default config of `problem` on the GPU `device`."""
    mean, rows = problem.rows_of_expert, busy_rows(problem)
    few = _FEW_ROWS_BESIDE_WGMMA if device.compute_capability == (9, 0) else _FEW_ROWS
    choices: list[KernelConfig] = []
    if problem.layout == CUDA_A8_LAYOUT:
        choices = [*_wgmma8(problem, device, rows), *_mma_of_codes(problem, rows)]
    elif mean > few:
        choices = [*_wgmma(problem), *_mma(rows), _PLAIN]
    if problem.layout != CUDA_A8_LAYOUT:
        choices += [*skinny(problem, min(rows, 32), device), _PLAIN]
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
