"""Configs and problems of the family mma where it multiplies codes, with and without a GPU."""

from __future__ import annotations

from dataclasses import replace

from humming.spec.config import MmaConfig
from humming.spec.layouts import CUDA_A8_LAYOUT, layout_for
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

PLAIN_BYTES = MmaConfig(
    block_m=32,
    block_n=64,
    block_k=128,
    warps_m=1,
    warps_n=4,
    warps_k=1,
    num_stages=2,
    split_k=1,
    cluster=0,
    stream_k=0,
    raster_group_m=8,
    blocks_per_sm=1,
    dependent_launch=0,
)
"""A config that every GPU runs in every format."""

KNOBS = ("block_m", "block_n", "block_k", "warps_m", "warps_n", "warps_k", "num_stages", "split_k")
CONFIGS = (
    ((32, 64, 128, 1, 4, 1, 3, 1), {}),
    ((64, 128, 128, 1, 4, 1, 3, 1), {}),
    ((64, 64, 256, 1, 2, 2, 2, 2), {"cluster": 1}),
    ((16, 64, 256, 1, 2, 2, 3, 3), {}),
    ((48, 64, 256, 1, 4, 1, 2, 1), {}),
    ((32, 32, 256, 2, 2, 1, 2, 4), {"cluster": 1}),
    ((128, 64, 128, 2, 4, 1, 2, 1), {}),
    ((32, 64, 128, 1, 2, 1, 2, 1), {"stream_k": 1}),
    ((64, 128, 256, 1, 8, 1, 2, 1), {"narrow": 1}),
    ((32, 64, 256, 1, 4, 1, 2, 1), {"narrow": 1}),
)
"""Tiles, warps, stages and shares of k (in the order of KNOBS) of every shape of the code."""

FORMATS = (
    "int8-int8",
    "int4-int8",
    "int4g128-int8",
    "uint4g128z-int8",
    "int3g32-int8",
    "int6g64-int8g128",
    "uint7g64z-int8",
    "mxint8-int8",
    "int4-int4",
    "int4g64-int4",
    "fp8e4m3-fp8e4m3",
    "fp8e4m3b128-fp8e4m3g128",
    "int4-fp8e4m3",
    "int4g128-fp8e4m3",
    "uint4g128z-fp8e4m3",
    "int5g96-fp8e4m3g96",
    "mxfp4-fp8e4m3",
    "mxfp4-mxfp4",
    "fp6e3m2g64-fp8e4m3",
    "fp7e3m3-fp8e4m3",
    "fp8e5m2-fp8e5m2",
    "fp4e2m1-fp8e5m2g256",
    "fp8e4m3-fp8e4m3t",
    "int4g128-fp8e4m3t",
)
"""Each way of codes, of scales of w and of x."""


def bytes_problem(
    format: str, dtype: str = "bf16", n: int = 256, k: int = 512, m: int = 64
) -> Problem:
    return Problem(format, n, k, m, dtype, dtype, layout=CUDA_A8_LAYOUT)


def takes(format: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU of `capability` multiplies the codes of `format`."""
    return layout_for(gpu(capability), format) == CUDA_A8_LAYOUT


def bytes_configs(format: str, capability: tuple[int, int], dtype: str) -> list[MmaConfig]:
    """Those of CONFIGS that a GPU of `capability` runs for `format`."""
    found = []
    for number, (knobs, others) in enumerate(CONFIGS):
        config = replace(PLAIN_BYTES, **dict(zip(KNOBS, knobs, strict=True)), **others)
        if capability >= (9, 0):
            config = replace(config, dependent_launch=number % 2)
        found.append(config)
        if config.cluster:
            found.append(replace(config, cluster=0))
    asked = bytes_problem(format, dtype)
    return [c for c in found if not config_violations(c, asked, gpu(capability))]
