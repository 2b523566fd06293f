"""Configs of the family wgmma under test, with and without a GPU."""

from __future__ import annotations

from dataclasses import replace

from cuda_cases import gpu, problem

from humming.spec.config import WgmmaConfig
from humming.spec.legality import config_violations

HOPPER = (9, 0)
PLAIN_WGMMA = WgmmaConfig(
    block_m=64,
    warpgroups=2,
    tiles_n=1,
    cluster_n=1,
    split_k=1,
    num_stages=4,
    num_stores=1,
    raster_group_m=8,
    blocks_per_sm=1,
    stream_k=0,
    dependent_launch=0,
)

KNOBS = ("block_m", "warpgroups", "tiles_n", "cluster_n", "num_stages", "blocks_per_sm", "stream_k")
"""Beside split_k, which SPLIT has."""
CONFIGS = (
    (256, 2, 1, 1, 5, 1, 0),
    (256, 2, 1, 2, 5, 1, 1),
    (128, 2, 2, 1, 8, 1, 1),
    (128, 2, 2, 2, 8, 1, 0),
    (64, 4, 1, 1, 6, 1, 1),
    (192, 2, 1, 1, 6, 1, 1),
    (112, 3, 1, 1, 4, 1, 1),
    (64, 2, 2, 4, 8, 1, 1),
    (64, 2, 1, 1, 6, 2, 1),
    (48, 1, 2, 1, 6, 2, 1),
    (128, 1, 2, 1, 5, 2, 1),
    (32, 2, 4, 2, 8, 1, 1),
    (16, 2, 4, 1, 3, 1, 1),
    (160, 3, 1, 2, 6, 1, 1),
    (80, 2, 1, 1, 10, 1, 1),
)
"""Tiles, clusters, stages and ways to cut k of every shape of the code."""
SPLIT = (
    (2, (256, 2, 1, 1, 4, 1, 0)),
    (2, (128, 2, 2, 1, 5, 1, 0)),
    (4, (64, 4, 1, 1, 6, 1, 0)),
    (2, (96, 3, 1, 1, 6, 1, 0)),
    (4, (16, 2, 1, 1, 6, 2, 0)),
)
"""split_k, and the rest."""
STORES = (
    (8, (256, 2, 1, 1, 4, 1, 0)),
    (2, (128, 3, 1, 1, 6, 1, 0)),
    (4, (64, 2, 2, 1, 6, 1, 1)),
    (3, (48, 2, 1, 2, 6, 1, 0)),
)
"""num_stores, and the rest."""


def wgmma_configs() -> list[WgmmaConfig]:
    """CONFIGS, most with a dependent launch."""
    found = [replace(PLAIN_WGMMA, **dict(zip(KNOBS, knobs, strict=True))) for knobs in CONFIGS]
    found += [
        replace(PLAIN_WGMMA, split_k=split_k, **dict(zip(KNOBS, knobs, strict=True)))
        for split_k, knobs in SPLIT
    ]
    found += [
        replace(PLAIN_WGMMA, num_stores=num_stores, **dict(zip(KNOBS, knobs, strict=True)))
        for num_stores, knobs in STORES
    ]
    found = [
        replace(c, dependent_launch=int(i % 4 != 3), raster_group_m=1 + i)
        for i, c in enumerate(found)
    ]
    assert not any(config_violations(c, problem("bf16"), gpu(HOPPER)) for c in found)
    return found
