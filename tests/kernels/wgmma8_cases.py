"""Configs and formats of the family wgmma8 under test, with and without a GPU."""

from __future__ import annotations

from dataclasses import replace

from humming.spec.carriers import carrier
from humming.spec.config import Wgmma8Config
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.legality.wgmma8 import needs_promotion
from humming.spec.problem import Problem
from tests.gpus import gpu

HOPPER = (9, 0)
PLAIN_WGMMA8 = Wgmma8Config(
    block_m=64,
    warpgroups=2,
    tiles_n=1,
    cluster_n=1,
    num_stages=4,
    raster_group_m=8,
    blocks_per_sm=1,
    stream_k=0,
    promote=0,
    dependent_launch=0,
)
FORMATS = (
    "fp8e4m3-fp8e4m3",
    "int8-int8",
    "int4-fp8e4m3",
    "mxfp4-fp8e4m3",
    "fp8e4m3b128-fp8e4m3g128",
    "int4g128-fp8e4m3",
    "int8g128-int8g128",
    "int4-int8",
    "fp4e2m1-fp8e4m3",
    "fp8e4m3t-fp8e4m3",
)

KNOBS = (
    "block_m",
    "warpgroups",
    "tiles_n",
    "cluster_n",
    "num_stages",
    "blocks_per_sm",
    "stream_k",
    "k_warpgroups",
    "split_k",
)
CONFIGS = (
    (256, 2, 1, 2, 3, 1, 1, 1, 1),
    (128, 2, 2, 1, 3, 1, 1, 1, 1),
    (192, 2, 1, 1, 4, 1, 0, 1, 1),
    (128, 2, 1, 4, 4, 1, 0, 1, 1),
    (96, 3, 1, 1, 4, 1, 1, 1, 1),
    (64, 2, 2, 2, 4, 1, 1, 1, 1),
    (48, 1, 2, 1, 3, 2, 1, 1, 1),
    (32, 4, 1, 1, 4, 1, 1, 1, 1),
    (16, 2, 1, 1, 8, 1, 1, 1, 1),
    (16, 1, 1, 1, 5, 4, 1, 1, 1),
    (16, 2, 2, 1, 2, 1, 1, 1, 1),
    (16, 4, 1, 1, 8, 1, 0, 4, 1),
    (64, 4, 1, 1, 8, 1, 1, 4, 1),
    (32, 4, 1, 1, 6, 1, 1, 2, 1),
    (16, 2, 2, 1, 4, 2, 1, 2, 1),
    (256, 2, 1, 1, 3, 1, 0, 1, 2),
    (64, 2, 1, 1, 4, 1, 0, 1, 4),
    (16, 4, 1, 1, 8, 1, 0, 4, 2),
    (16, 4, 2, 1, 6, 1, 0, 2, 4),
)
"""Tiles, clusters, stages and ways to cut k, between blocks and within one, of every shape of the
code."""


def byte_problem(
    format: str, n: int = 4096, k: int = 4096, m: int = 64, activation: str = "bf16"
) -> Problem:
    return Problem(format, n, k, m, activation, activation, layout=CUDA_A8_LAYOUT)


def wgmma8_configs(format: str) -> list[Wgmma8Config]:
    """CONFIGS that are legal for `format`, most with a dependent launch; where sums may stay in
    tensor cores, some do and some do not."""
    asked, found = byte_problem(format), []
    must = needs_promotion(asked)
    may = must or (carrier(format) == "fp8e4m3" and asked.quant.weight.scale_dtype is None)
    for i, knobs in enumerate(CONFIGS):
        config = replace(PLAIN_WGMMA8, **dict(zip(KNOBS, knobs, strict=True)))
        config = replace(config, dependent_launch=int(i % 4 != 3), raster_group_m=1 + i)
        config = replace(config, promote=int(must or (may and i % 3 == 1)))
        if not config_violations(config, asked, gpu(HOPPER)):
            found.append(config)
    assert 2 * len(found) >= len(CONFIGS), format
    return found
