"""Batch invariance: which configs give the same row of x the same bits, whatever other rows there
are. Pure; choosing among them is dispatch/invariant.py.

A row's bits depend on the order in which its products are added up along k. A config has one where
that order does not depend on m; configs of one order may serve one layer, each its interval of m.
"""

from __future__ import annotations

from dataclasses import asdict

from humming.spec.config import CpuConfig, KernelConfig, MmaConfig, SkinnyConfig, WgmmaConfig

Order = tuple[object, ...]

_TILE_KNOBS = {
    "mma": (
        "block_m",
        "block_n",
        "warps_m",
        "warps_n",
        "num_stages",
        "raster_group_m",
        "blocks_per_sm",
        "dependent_launch",
    ),
    "skinny": ("dependent_launch",),
    "wgmma": ("raster_group_m", "dependent_launch"),
}
"""Knobs that say which block computes what and when, and nothing about the order along k. Of
`skinny` and `wgmma` only those that were shown to be so."""


def sum_order(config: KernelConfig) -> Order | None:
    """The order in which `config` adds up along k; None where it depends on m.

    torch's matmul chooses another one by m, and what is dealt out evenly is cut by m.
    """
    if isinstance(config, CpuConfig):
        along_k = (config.unroll, config.split_k) if config.mainloop == "stream" else ()
        block_k = config.block_k if config.mainloop == "blocked" else 0
        return (config.family, config.mainloop, config.code_path, block_k, *along_k)
    if not isinstance(config, (MmaConfig, SkinnyConfig, WgmmaConfig)):
        return None
    knobs = {k: v for k, v in asdict(config).items() if k not in _TILE_KNOBS[config.family]}
    if knobs.pop("stream_k", 0):
        return None
    if isinstance(config, MmaConfig) and config.warps_k == config.split_k == 1:
        del knobs["block_k"]  # one warp goes through all of k by the same steps
    return (config.family, *sorted(knobs.items()))
