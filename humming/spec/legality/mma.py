"""What the mma family (many rows of x, weights scaled in registers) can run on a device. What it
asks besides where it multiplies codes is mma_bytes.py."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.config import MmaConfig
from humming.spec.layouts import (
    CUDA_A8_LAYOUT,
    CUDA_LAYOUT,
    cuda_group_size,
    cuda_scale_dtype,
)
from humming.spec.legality import mma_bytes
from humming.spec.legality.cuda import blocks_fit, capability, problem_rules, smem_per_block
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

TILE_MOST = 256
SPLIT_K_MOST = 8
STAGES_LEAST, STAGES_MOST = 2, 8
WARPS_MOST = 16
GRID_X_MOST = 2**31 - 1

GROUP_SIZES = (0, 16, 32, 64, 128)
"""Packed groups that the kernel steps by; 0 = rows alone have scales."""


def mma_smem_bytes(config: MmaConfig, problem: Problem) -> int:
    """Bytes of shared memory of a block: what the kernel's plan adds up to, and asserts."""
    of_codes = mma_bytes.multiplies_codes(problem)
    ring = (mma_bytes.mma_bytes_ring if of_codes else _ring)(config, problem)
    output = config.block_m * (config.block_n + 4) * 4
    exchange = 0  # of sums, between warps that share k
    if _fragments(config) % max(config.warps_k, 1) == 0:
        exchange = (config.warps_k - 1) * config.block_m * config.block_n * 4
    return max(ring, output, exchange) + 128  # its base is aligned to 128 by hand


def _ring(config: MmaConfig, problem: Problem) -> int:
    """Bytes of shared memory of a block's stages."""
    weight = problem.quant.weight
    size = cuda_group_size(weight)
    row_tiles, k_tiles = config.block_n // 16, config.block_k // 64
    x = config.block_m * config.block_k * 2
    codes = row_tiles * k_tiles * 128 * weight.dtype.bits
    scales = row_tiles * (-(-config.block_k // size) if size else 0) * 32
    scales *= 2 if weight.zero_point else 1
    return config.num_stages * -(-(x + codes + scales) // 128) * 128


def mma_accumulators(config: MmaConfig) -> int:
    """Registers of a thread that hold sums."""
    tile = config.block_m * config.block_n * config.warps_k
    sums = tile // (32 * config.warps) if config.warps else 0
    return sums + (sums // 2 if config.half_sums else 0)


def mma_accumulators_most(config: MmaConfig) -> int:
    """As many as leave room for operands."""
    return 144 if config.warps * config.blocks_per_sm <= 8 else 80


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = True
) -> Rule:
    return config_rule("mma", f"mma_{name}", holds, says, static)


def _range(knob: str, least: int, most: int) -> Rule:
    return _rule(
        f"{knob}_range",
        lambda c, p, d: least <= getattr(c, knob) <= most,
        lambda c, p, d: (
            f"`{least} <= {knob} <= {most}` must hold, but got {knob}={getattr(c, knob)}"
        ),
    )


def _multiple(knob: str, warps: str, unit: int, most: int) -> Rule:
    def holds(c: MmaConfig) -> bool:
        step, size = unit * int(getattr(c, warps)), int(getattr(c, knob))
        return step > 0 and 0 < size <= most and size % step == 0

    return _rule(
        f"{knob}_multiple",
        lambda c, p, d: holds(c),
        lambda c, p, d: (
            f"`{knob} % ({unit} * {warps}) == 0` and `{knob} <= {most}` must hold, but got "
            f"{knob}={getattr(c, knob)}, {warps}={getattr(c, warps)}"
        ),
    )


def _needs_hopper(knob: str, name: str, what: str) -> Rule:
    return _rule(
        name,
        lambda c, p, d: not getattr(c, knob) or capability(d) >= (9, 0),
        lambda c, p, d: (
            f"{what} needs compute capability 9.0 or newer, but '{d.name}' has "
            f"{'.'.join(map(str, capability(d)))}"
        ),
    )


def _whole(block_k: int, size: int) -> bool:
    return size == 0 or block_k % size == 0 or (block_k > 0 and size % block_k == 0)


def _columns(config: MmaConfig) -> int:
    return config.block_m // 8 // max(config.warps_m, 1)


def _fragments(config: MmaConfig) -> int:
    """Products of 16 rows of w and 8 of x that a warp sums up."""
    return config.block_n // 16 // max(config.warps_n, 1) * _columns(config)


def _units(config: MmaConfig, problem: Problem) -> int:
    tiles = -(-problem.m // config.block_m) * -(-problem.n // config.block_n)
    return tiles * -(-problem.k // config.block_k) if config.stream_k else tiles


RULES: tuple[Rule, ...] = (
    *problem_rules("mma", every_format=True, experts=True, layouts=(CUDA_LAYOUT, CUDA_A8_LAYOUT)),
    *mma_bytes.RULES,
    problem_rule(
        "mma",
        "mma_experts_order",
        lambda p, d: (
            p.op == "dense" or not (p.act_order or (p.k % 8 and not mma_bytes.multiplies_codes(p)))
        ),
        lambda p, d: (
            "family 'mma' takes experts without act-order and `k % 8 == 0`, but got "
            f"act_order={p.act_order}, k={p.k}; the family skinny takes them"
        ),
    ),
    _rule(
        "experts_knobs",
        lambda c, p, d: p.op == "dense" or (not c.stream_k and (c.split_k == 1 or bool(c.cluster))),
        lambda c, p, d: (
            "experts take stream_k 0, and split_k by a cluster, but got "
            f"stream_k={c.stream_k}, split_k={c.split_k}, cluster={c.cluster}"
        ),
        static=False,
    ),
    problem_rule(
        "mma",
        "mma_group_size",
        lambda p, d: (
            mma_bytes.multiplies_codes(p) or cuda_group_size(p.quant.weight) in GROUP_SIZES
        ),
        lambda p, d: (
            f"family 'mma' takes groups of a multiple of 16, but got format '{p.format}'; the "
            "family dequantize takes it"
        ),
    ),
    problem_rule(
        "mma",
        "mma_rounds_once",
        lambda p, d: (
            mma_bytes.multiplies_codes(p)
            or (
                p.quant.weight.zero_point != "float"
                and cuda_scale_dtype(p.quant.weight, p.activation_dtype) == p.activation_dtype
            )
        ),
        lambda p, d: (
            "family 'mma' takes zero points that are whole numbers, and scales of the activation's "
            f"type, but got format '{p.format}' and {p.activation_dtype}; the family dequantize "
            "takes it"
        ),
    ),
    problem_rule(
        "mma",
        "mma_exponents",
        lambda p, d: (
            mma_bytes.multiplies_codes(p)
            or p.activation_dtype != "fp16"
            or p.quant.weight.dtype.exponent_bits <= 5
        ),
        lambda p, d: (
            f"fp16 has 5 exponent bits, but codes of format '{p.format}' have "
            f"{p.quant.weight.dtype.exponent_bits}; use bf16, or the family dequantize"
        ),
    ),
    _range("warps", 1, WARPS_MOST),
    _multiple("block_n", "warps_n", 16, TILE_MOST),
    _multiple("block_m", "warps_m", 16, TILE_MOST),
    _multiple("block_k", "warps_k", 64, TILE_MOST),
    _rule(
        "groups_whole",
        lambda c, p, d: (
            mma_bytes.multiplies_codes(p) or _whole(c.block_k, cuda_group_size(p.quant.weight))
        ),
        lambda c, p, d: (
            "`block_k % group_size == 0` or `group_size % block_k == 0` must hold, but got "
            f"block_k={c.block_k} and groups of {cuda_group_size(p.quant.weight)}"
        ),
    ),
    _rule(
        "columns_even",
        lambda c, p, d: _columns(c) <= 8 or _columns(c) % 4 == 0,
        lambda c, p, d: (
            "a warp's rows of x must be at most 64, or a multiple of 32, but got "
            f"block_m={c.block_m}, warps_m={c.warps_m}"
        ),
    ),
    _range("num_stages", STAGES_LEAST, STAGES_MOST),
    _range("split_k", 1, SPLIT_K_MOST),
    _range("cluster", 0, 1),
    _range("stream_k", 0, 1),
    _rule(
        "stream_k_knobs",
        lambda c, p, d: (
            not c.stream_k or (c.split_k == 1 and _fragments(c) % max(c.warps_k, 1) == 0)
        ),
        lambda c, p, d: (
            "stream_k takes split_k 1 and warps_k that divides a warp's fragments, but got "
            f"split_k={c.split_k}, warps_k={c.warps_k} and {_fragments(c)} fragments"
        ),
    ),
    _range("raster_group_m", 1, 1 << 16),
    _range("blocks_per_sm", 1, 4),
    _range("dependent_launch", 0, 1),
    _rule(
        "half_sums",
        lambda c, p, d: (
            c.half_sums == 0
            or (
                c.half_sums == 1
                and p.activation_dtype == "fp16"
                and not mma_bytes.multiplies_codes(p)
            )
        ),
        lambda c, p, d: (
            "half_sums must be 0, or 1 where numbers of fp16 are multiplied, but got "
            f"half_sums={c.half_sums} and {p.activation_dtype}"
        ),
    ),
    _rule(
        "cluster_split",
        lambda c, p, d: c.split_k > 1 or not c.cluster,
        lambda c, p, d: "`cluster == 0` must hold where split_k is 1, as there is none to share k",
    ),
    _rule(
        "accumulators_fit",
        lambda c, p, d: mma_accumulators(c) <= mma_accumulators_most(c),
        lambda c, p, d: (
            f"a thread's sums must fit {mma_accumulators_most(c)} registers, but got "
            f"{mma_accumulators(c)}; take smaller tiles or more warps"
        ),
    ),
    _needs_hopper("cluster", "cluster_device", "split_k over a cluster"),
    _needs_hopper("dependent_launch", "dependent_device", "a dependent launch"),
    _rule(
        "smem_fits",
        lambda c, p, d: mma_smem_bytes(c, p) <= smem_per_block(d),
        lambda c, p, d: (
            f"`smem_bytes <= {smem_per_block(d)}` must hold on '{d.name}', but got "
            f"{mma_smem_bytes(c, p)}"
        ),
        static=False,
    ),
    _rule(
        "blocks_per_sm_fit",
        lambda c, p, d: blocks_fit(d, c.blocks_per_sm, c.warps * 32, mma_smem_bytes(c, p)),
        lambda c, p, d: (
            f"{c.blocks_per_sm} blocks of {c.warps * 32} threads and {mma_smem_bytes(c, p)} bytes "
            f"must fit one multiprocessor of '{d.name}'; lower blocks_per_sm"
        ),
        static=False,
    ),
    _rule(
        "grid_fits",
        lambda c, p, d: _units(c, p) <= GRID_X_MOST,
        lambda c, p, d: (
            f"a grid has up to {GRID_X_MOST} output tiles (with stream_k, times their stages of "
            f"k), but got m={p.m}, n={p.n}, k={p.k}"
        ),
        static=False,
    ),
)
