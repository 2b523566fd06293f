"""Configs of the family mma under test, with and without a GPU."""

from __future__ import annotations

from dataclasses import replace

from cuda_cases import Case, greedy, problem

from humming.spec.config import MmaConfig
from humming.spec.legality import config_violations
from tests.gpus import gpu

PLAIN_MMA = MmaConfig(
    block_m=32,
    block_n=64,
    block_k=64,
    warps_m=1,
    warps_n=2,
    warps_k=1,
    num_stages=2,
    split_k=1,
    cluster=0,
    stream_k=0,
    raster_group_m=8,
    blocks_per_sm=1,
    dependent_launch=0,
)
"""A config that every GPU runs."""

CHOICES: dict[str, tuple[int, ...]] = {
    "block_m": (16, 32, 64, 96),
    "block_n": (32, 64, 128),
    "block_k": (64, 128),
    "warps_m": (1, 2),
    "warps_n": (1, 2, 4),
    "warps_k": (1, 2),
    "num_stages": (2, 4),
    "split_k": (1, 2),
    "cluster": (0, 1),
    "stream_k": (0, 1),
    "blocks_per_sm": (1, 2),
    "dependent_launch": (0, 1),
    "half_sums": (0, 1),
}

KNOBS = tuple(CHOICES)[:10]
CONFIGS = (
    (128, 128, 128, 1, 4, 2, 4, 1, 0, 0),
    (128, 128, 128, 2, 4, 1, 3, 1, 0, 0),
    (64, 128, 128, 1, 4, 2, 4, 2, 1, 0),
    (64, 128, 128, 1, 4, 2, 4, 2, 0, 0),
    (32, 128, 256, 1, 4, 4, 3, 1, 0, 0),
    (16, 64, 64, 1, 4, 1, 2, 1, 0, 0),
    (128, 128, 128, 2, 2, 2, 3, 1, 0, 0),
    (256, 128, 64, 2, 4, 1, 4, 1, 0, 0),
    (64, 256, 64, 1, 8, 1, 5, 1, 0, 0),
    (32, 64, 256, 1, 2, 4, 4, 4, 1, 0),
    (48, 96, 128, 1, 2, 2, 3, 3, 0, 0),
    (96, 128, 128, 1, 4, 2, 3, 2, 1, 0),
    (32, 32, 64, 1, 2, 1, 3, 8, 0, 0),
    (64, 16, 256, 4, 1, 1, 2, 1, 0, 0),
    (64, 64, 64, 2, 2, 1, 2, 1, 0, 0),
    (128, 128, 128, 1, 4, 2, 4, 1, 0, 1),
    (64, 128, 128, 2, 2, 1, 3, 1, 0, 1),
    (32, 64, 128, 1, 2, 2, 4, 1, 0, 1),
)
"""Tiles, warps, stages and shares of k (in the order of KNOBS) of every shape of the code."""


def mma_configs(capability: tuple[int, int], activation: str = "fp16") -> list[MmaConfig]:
    """Those of CONFIGS that a GPU of `capability` runs, some with a dependent launch."""
    found = [replace(PLAIN_MMA, **dict(zip(KNOBS, knobs, strict=True))) for knobs in CONFIGS]
    if capability >= (9, 0):
        found = [
            replace(c, dependent_launch=int(i % 4 != 3), raster_group_m=1 + i)
            for i, c in enumerate(found)
        ]
    return [c for c in found if not config_violations(c, problem(activation), gpu(capability))]


def mma_cover(everywhere: bool) -> list[Case]:
    """Legal cases in which every legal pair of (activation, knob values) meets, and every GPU is;
    `everywhere`: each value meets each GPU too. Greedy over random ones, deterministic."""
    return greedy(PLAIN_MMA, CHOICES, 4000, everywhere)
