"""KernelConfig: the tunables of one kernel, a frozen dataclass per family. What is legal is in
legality.py.

A new family adds one dataclass here and one line to FAMILIES; a new knob adds one field.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Union

from humming.errors import LegalityError
from humming.spec.canonical import content_hash, plain
from humming.spec.naming import did_you_mean


@dataclass(frozen=True)
class CpuConfig:
    """Tunables of the CPU family.

    mainloop     "stream": weights go from memory to registers once, for small m.
                 "blocked": a tile is dequantized into cache once and used by all rows of x, for
                 large m.
    code_path    a key of device.CODE_PATH_FLAGS
    block_m      rows of x that one register tile holds
    block_n      rows of w that one register tile holds, a multiple of 16
    block_k      k elements dequantized at a time (blocked only; 128 for stream)
    unroll       accumulator sets per tile that k alternates over (stream only; 1 for blocked)
    prefetch_bytes  how far ahead of the weight stream to prefetch; 0 = leave it to the hardware
    split_k      threads that share one output tile's k (1 = off; stream only)
    """

    family: ClassVar[str] = "cpu"
    mainloop: str
    code_path: str
    block_m: int
    block_n: int
    block_k: int
    unroll: int
    prefetch_bytes: int
    split_k: int

    def __str__(self) -> str:
        text = f"{self.mainloop} {self.code_path} {self.block_m}x{self.block_n}"
        if self.mainloop == "blocked":
            text += f"x{self.block_k}"
        for mark, value, off in (
            ("u", self.unroll, 1),
            ("p", self.prefetch_bytes, 0),
            ("k/", self.split_k, 1),
        ):
            text += f" {mark}{value}" if value != off else ""
        return text


@dataclass(frozen=True)
class BlasConfig:
    """Tunables of the blas family on CPUs: weights to fp32 in a workspace, then torch's matmul.

    code_path    a key of device.CODE_PATH_FLAGS whose values are fp32
    panel_n      rows of w that are dequantized, then multiplied, at a time
    """

    family: ClassVar[str] = "blas"
    block_m: ClassVar[int] = 16
    """Not a knob: rows of a matmul's tile, near enough for where tails begin."""
    code_path: str
    panel_n: int

    def __str__(self) -> str:
        return f"blas {self.code_path} n{self.panel_n}"


@dataclass(frozen=True)
class SkinnyConfig:
    """Tunables of the skinny family: few rows of x, tensor cores, one stream of the weights.

    A warp (or warpgroup) of a block takes a share of k for all the block's rows of w; sums meet in
    shared memory, in a fixed order.

    block_m      rows of x that one pass over the weights serves; more rows take more passes
    tiles_n      row tiles of a block: of 16 rows of w, of 64 with warpgroups
    warps        warps of a block, which share k (four by four with warpgroups)
    split_k      blocks of a cluster that share k (1 = off)
    num_stages   ring stages of weights that a warp has in flight; 0 = held in registers, one group
                 of k ahead
    stage_tiles  row tiles of one ring stage
    x_stages     groups of x that a warp or warpgroup has in flight
    blocks_per_sm     blocks for which registers are to be found on one multiprocessor
    dependent_launch  1: the weights' stream starts before the kernel before has ended
    warpgroup    1: warpgroup products (wgmma), on compute capability 9.0 only
    exact_codes  1: codes lose their bias before they are multiplied, and not after, where an
                 infinite x gives NaN
    walk         1: of experts, as many blocks as the device runs at once go through all tiles, and
                 what a tile wants comes while the one before is multiplied; num_stages are groups
                 of k that a warp then has in flight, x among them
    """

    family: ClassVar[str] = "skinny"
    block_m: int
    tiles_n: int
    warps: int
    split_k: int
    num_stages: int
    stage_tiles: int
    x_stages: int
    blocks_per_sm: int
    dependent_launch: int
    warpgroup: int
    exact_codes: int
    walk: int = 0

    def __str__(self) -> str:
        text = f"{'wgmma' if self.warpgroup else 'mma'} {self.block_m}x{self.tiles_n}"
        text += f" w{self.warps} d{self.num_stages}x{self.stage_tiles} x{self.x_stages}"
        for mark, value, off in (
            ("k/", self.split_k, 1),
            ("b", self.blocks_per_sm, 1),
            ("exact", self.exact_codes, 0),
            ("pdl", self.dependent_launch, 1),
            ("walk", self.walk, 0),
        ):
            text += f" {mark}{value}" if value != off else ""
        return text


@dataclass(frozen=True)
class WgmmaConfig:
    """Tunables of the wgmma family: many rows of x, products of whole warpgroups, on compute
    capability 9.0.

    block_m      rows of x of an output tile
    warpgroups   warpgroups of a block that multiply; one more brings what they read
    tiles_n      tiles of 64 rows of w that each of them has
    cluster_n    blocks along n that bring x for each other
    split_k      blocks of a cluster that share an output tile's k (1 = off)
    num_stages   shared memory stages of 64 columns of x and w in flight
    num_stores   pieces of the output that the copy engine has at once; 1 = threads write it
    raster_group_m    output tiles along m that neighbours of a wave go through before the next n
    blocks_per_sm     blocks for which registers are to be found on one multiprocessor
    stream_k     1: tiles that fill no whole wave are cut along k and spread over all blocks
    dependent_launch  1: the weights' stream starts before the kernel before has ended
    """

    family: ClassVar[str] = "wgmma"
    k_warpgroups: ClassVar[int] = 1
    """Not a knob: warpgroups that have the same rows of w and take units of k in turns."""
    block_m: int
    warpgroups: int
    tiles_n: int
    cluster_n: int
    split_k: int
    num_stages: int
    num_stores: int
    raster_group_m: int
    blocks_per_sm: int
    stream_k: int
    dependent_launch: int

    def __str__(self) -> str:
        text = f"wgmma {self.block_m}x{self.warpgroups}x{64 * self.tiles_n} d{self.num_stages}"
        for mark, value, off in (
            ("c", self.cluster_n, 1),
            ("k/", self.split_k, 1),
            ("s", self.num_stores, 1),
            ("r", self.raster_group_m, 8),
            ("b", self.blocks_per_sm, 1),
            ("stream", self.stream_k, 0),
            ("pdl", self.dependent_launch, 1),
        ):
            text += f" {mark}{value}" if value != off else ""
        return text


@dataclass(frozen=True)
class Wgmma8Config:
    """Tunables of the wgmma8 family: products of bytes by whole warpgroups, on compute capability
    9.0.

    block_m      rows of x of an output tile
    warpgroups   warpgroups of a block that multiply; one more brings what they read
    tiles_n      tiles of 64 rows of w that each of them has
    cluster_n    blocks along n that bring x for each other
    num_stages   shared memory stages of 128 columns of x and w in flight
    raster_group_m    output tiles along m that neighbours of a wave go through before the next n
    blocks_per_sm     blocks for which registers are to be found on one multiprocessor
    stream_k     1: tiles that fill no whole wave are cut along k and spread over all blocks
    promote      1: what 128 columns give is added up in fp32, out of the tensor cores, which keep
                 fewer bits of fp8 products
    dependent_launch  1: the weights' stream starts before the kernel before has ended
    k_warpgroups      warpgroups that have the same rows of w, and units of k in turns (1 = off)
    split_k           blocks of a cluster that share an output tile's k (1 = off)
    """

    family: ClassVar[str] = "wgmma8"
    block_m: int
    warpgroups: int
    tiles_n: int
    cluster_n: int
    num_stages: int
    raster_group_m: int
    blocks_per_sm: int
    stream_k: int
    promote: int
    dependent_launch: int
    k_warpgroups: int = 1
    split_k: int = 1

    def __str__(self) -> str:
        text = f"wgmma8 {self.block_m}x{self.warpgroups}x{64 * self.tiles_n} d{self.num_stages}"
        for mark, value, off in (
            ("c", self.cluster_n, 1),
            ("r", self.raster_group_m, 8),
            ("b", self.blocks_per_sm, 1),
            ("stream", self.stream_k, 0),
            ("promote", self.promote, 0),
            ("turns", self.k_warpgroups, 1),
            ("k/", self.split_k, 1),
            ("pdl", self.dependent_launch, 1),
        ):
            text += f" {mark}{value}" if value != off else ""
        return text


@dataclass(frozen=True)
class ScaledMmConfig:
    """Tunables of the scaled_mm family: torch's own product of fp8 by fp8.

    fast_sums   1: sums stay in the tensor cores over all of k
    """

    family: ClassVar[str] = "scaled_mm"
    block_m: ClassVar[int] = 128
    """Not a knob: rows of a tile of the product, near enough for where tails begin."""
    fast_sums: int

    def __str__(self) -> str:
        return "scaled_mm" + (" fast" if self.fast_sums else "")


@dataclass(frozen=True)
class DequantizeConfig:
    """Tunables of the dequantize family: weights to 16 bits in a workspace, then torch's matmul.

    warps    warps of a block
    unroll   tiles of 16 rows by 64 columns that a warp loads before it stores one
    panel_n  rows of w that are dequantized, then multiplied, at a time, so that L2 may hold them;
             0 = all of n at once
    """

    family: ClassVar[str] = "dequantize"
    block_m: ClassVar[int] = 128
    """Not a knob: rows of a matmul's tile, near enough for where tails begin."""
    warps: int
    unroll: int
    panel_n: int

    def __str__(self) -> str:
        return f"dequantize w{self.warps} u{self.unroll}" + (
            f" n{self.panel_n}" if self.panel_n else ""
        )


@dataclass(frozen=True)
class MmaConfig:
    """Tunables of the mma family: many rows of x, tensor cores, weights scaled in registers.

    block_m, block_n, block_k   rows of x, rows of w and columns of k that a block takes at a time
    warps_m, warps_n, warps_k   warps of a block that share each of them
    num_stages   block_k columns of both operands that a block holds in shared memory
    split_k      blocks that share the k of one output tile (1 = off)
    cluster      1: they add up in a cluster; 0: through the workspace, by a second kernel
    stream_k     1: all tiles' k is dealt out evenly to as many blocks as the device runs at once
    raster_group_m    tiles along m that follow each other before the next along n
    blocks_per_sm     blocks for which registers are to be found on one multiprocessor
    dependent_launch  1: the weights' stream starts before the kernel before has ended
    narrow            1: products of 4-bit codes, where codes are multiplied and the GPU has such
    half_sums         1: 64 columns are added up in fp16 before they are in fp32, for GPUs that do
                      so twice as fast; the error is several times as large
    """

    family: ClassVar[str] = "mma"
    block_m: int
    block_n: int
    block_k: int
    warps_m: int
    warps_n: int
    warps_k: int
    num_stages: int
    split_k: int
    cluster: int
    stream_k: int
    raster_group_m: int
    blocks_per_sm: int
    dependent_launch: int
    narrow: int = 0
    half_sums: int = 0

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.warps_m * self.warps_n * self.warps_k

    def __str__(self) -> str:
        text = f"mma {self.block_m}x{self.block_n}x{self.block_k}"
        text += f" w{self.warps_m}x{self.warps_n}x{self.warps_k} d{self.num_stages}"
        for mark, value, off in (
            ("k/", self.split_k, 1),
            ("cluster", self.cluster, int(self.split_k > 1)),
            ("stream", self.stream_k, 0),
            ("g", self.raster_group_m, 8),
            ("b", self.blocks_per_sm, 1),
            ("pdl", self.dependent_launch, 1),
            ("narrow", self.narrow, 0),
            ("half", self.half_sums, 0),
        ):
            text += f" {mark}{value}" if value != off else ""
        return text


KernelConfig = Union[  # noqa: UP007  (3.10 at run time)
    CpuConfig,
    BlasConfig,
    SkinnyConfig,
    DequantizeConfig,
    MmaConfig,
    WgmmaConfig,
    Wgmma8Config,
    ScaledMmConfig,
]

FAMILIES: dict[str, type[KernelConfig]] = {
    CpuConfig.family: CpuConfig,
    BlasConfig.family: BlasConfig,
    SkinnyConfig.family: SkinnyConfig,
    DequantizeConfig.family: DequantizeConfig,
    MmaConfig.family: MmaConfig,
    WgmmaConfig.family: WgmmaConfig,
    Wgmma8Config.family: Wgmma8Config,
    ScaledMmConfig.family: ScaledMmConfig,
}


def config_to_dict(config: KernelConfig) -> dict[str, Any]:
    """`config` as {"family": ..., knob: value, ...}, ready for canonical JSON."""
    return {"family": config.family, **plain(config)}


def config_from_dict(values: dict[str, Any]) -> KernelConfig:
    """The config that `config_to_dict` wrote. Raises LegalityError on an unknown family or a knob
    missing, unknown or mistyped."""
    values = dict(values)
    family = values.pop("family", None)
    if family not in FAMILIES:
        raise LegalityError(
            f"family must be one of {', '.join(FAMILIES)}, but got {family!r}"
            f"{did_you_mean(str(family), FAMILIES)}"
        )
    cls = FAMILIES[family]
    types = {f.name: {"int": int, "str": str}[str(f.type)] for f in fields(cls)}
    for name, value in values.items():
        if name not in types:
            raise LegalityError(
                f"family '{family}' has no knob '{name}'{did_you_mean(name, types)}"
            )
        if type(value) is not types[name]:
            raise LegalityError(
                f"knob '{name}' of family '{family}' must be {types[name].__name__}, but got "
                f"{value!r}"
            )
    settled = {f.name for f in fields(cls) if f.default is not MISSING}
    missing = sorted(types.keys() - values.keys() - settled)
    if missing:
        raise LegalityError(f"family '{family}' needs the knobs {', '.join(missing)}")
    return cls(**values)


def config_id(config: KernelConfig) -> str:
    """Content hash of a config's canonical JSON: the name by which evidence refers to it."""
    return content_hash(config_to_dict(config))
