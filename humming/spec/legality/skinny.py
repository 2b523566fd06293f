"""What the skinny family (few rows of x, bound by the stream of weights) can run on a device."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.config import SkinnyConfig
from humming.spec.layouts import cuda_group_size, cuda_scale_dtype
from humming.spec.legality.cuda import (
    GRID_Y_MOST,
    blocks_fit,
    capability,
    problem_rules,
    smem_per_block,
)
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

BLOCK_M_MOST = 32
TILES_N_MOST = 16
SPLIT_K_MOST = 8
STAGES_MOST = 32
X_STAGES_MOST = 4
_WORKING_REGISTERS = 36  # of a thread, beside sums, rows of x and codes
GROUP_SIZES = (0, 16, 32, 64, 128)
"""Packed groups that kernels step by; 0 = rows alone have scales."""


def x_by_element(problem: Problem) -> bool:
    """Whether x is read one number at a time: gathered by act-order, or of rows of any length."""
    return problem.act_order or problem.k % 8 != 0


def warpgroup_takes(problem: Problem) -> bool:
    """Whether warpgroup products of this family know the weight's format, k and order."""
    weight, size = problem.quant.weight, cuda_group_size(problem.quant.weight)
    in_16_bits = 0 < size < 128  # scales, and zero points
    fits = cuda_scale_dtype(weight, problem.activation_dtype) == problem.activation_dtype
    fits = fits and weight.zero_point != "float"
    return (fits or not in_16_bits) and not x_by_element(problem)


def skinny_block_rows(config: SkinnyConfig) -> int:
    """Rows of w that one output tile has."""
    return (64 if config.warpgroup else 16) * config.tiles_n


def skinny_smem_bytes(config: SkinnyConfig, problem: Problem) -> int:
    """Bytes of shared memory of a block: what the kernel's plan adds up to, and asserts."""
    weight = problem.quant.weight
    ring = max(config.num_stages, 0) * config.stage_tiles * 256 * weight.dtype.bits
    size = cuda_group_size(weight)
    groups = 128 // size if size else 0  # of 128 columns
    scales = config.tiles_n * groups * 32 * (2 if weight.zero_point else 1)
    if config.walk:
        unit = config.tiles_n * 256 * weight.dtype.bits + config.block_m * 272
        partials = config.block_m * (16 * config.tiles_n + 4) * 4
        stages = config.num_stages
        return config.warps * (stages * unit + (stages + 1) * scales + partials)
    if config.warpgroup:
        ways, columns = config.warps // 4, -(-config.block_m // 8)
        barriers = config.warps * config.num_stages * 8 + ways * config.x_stages * 16
        first = -(-barriers // 1024) * 1024
        rings = ways * config.x_stages * columns * 2048
        rings += config.warps * (config.x_stages * scales + ring)
    else:
        ways = config.warps
        first = -(-config.warps * (config.num_stages + config.x_stages) * 8 // 16) * 16
        operands = config.x_stages * config.block_m * 272 + (config.x_stages + 1) * scales
        rings = config.warps * (ring + operands)
    rows = skinny_block_rows(config)
    partials = ways * config.block_m * (rows + 4) * 4
    pairs = config.block_m * rows // 2
    gather = config.split_k * -(-pairs // config.split_k) * 8 if config.split_k > 1 else 0
    used = -(-(first + max(rings, partials)) // 16) * 16 + gather
    return used + (1024 if config.warpgroup else 0)  # its base is aligned to 1024 by hand


def _registers(config: SkinnyConfig, problem: Problem) -> int:
    """What a thread of experts' blocks wants where warps multiply on their own: sums, eight rows of
    x at a time with their products, the codes that it holds."""
    columns = -(-config.block_m // 8)
    held = config.stage_tiles if config.num_stages else config.tiles_n
    codes = 2 * problem.quant.weight.dtype.bits * held
    return 4 * config.tiles_n * columns + 24 * columns + codes + _WORKING_REGISTERS


def _registers_most(config: SkinnyConfig) -> int:
    threads = max(1, 32 * config.warps * config.blocks_per_sm)
    return min(255, 65536 // threads // 8 * 8)


def _walks(config: SkinnyConfig) -> bool:
    alone = config.split_k == config.x_stages == 1 and not config.warpgroup
    return alone and config.num_stages >= 1


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("skinny", name, holds, says, static)


def _range(knob: str, least: int, most: int) -> Rule:
    return _rule(
        f"skinny_{knob}_range",
        lambda c, p, d: least <= getattr(c, knob) <= most,
        lambda c, p, d: (
            f"`{least} <= {knob} <= {most}` must hold, but got {knob}={getattr(c, knob)}"
        ),
        static=True,
    )


def _needs(name: str, asks: Callable[..., bool], least: tuple[int, int], what: str) -> Rule:
    return _rule(
        name,
        lambda c, p, d: not asks(c) or capability(d) >= least,
        lambda c, p, d: (
            f"{what} needs compute capability {'.'.join(map(str, least))} or newer, but "
            f"'{d.name}' has {'.'.join(map(str, capability(d)))}"
        ),
        static=True,
    )


RULES: tuple[Rule, ...] = (
    *problem_rules("skinny", every_format=True, experts=True),
    problem_rule(
        "skinny",
        "skinny_group_size",
        lambda p, d: cuda_group_size(p.quant.weight) in GROUP_SIZES,
        lambda p, d: (
            f"family 'skinny' takes groups of a multiple of 16, but got format '{p.format}'; the "
            "family dequantize takes it"
        ),
    ),
    problem_rule(
        "skinny",
        "skinny_float_zero_points",
        lambda p, d: p.quant.weight.zero_point != "float" or cuda_group_size(p.quant.weight) >= 64,
        lambda p, d: (
            "family 'skinny' takes float zero points of groups of a multiple of 64, but got format "
            f"'{p.format}'; the family dequantize takes it"
        ),
    ),
    problem_rule(
        "skinny",
        "skinny_exponents",
        lambda p, d: p.activation_dtype != "fp16" or p.quant.weight.dtype.exponent_bits <= 5,
        lambda p, d: (
            f"fp16 has 5 exponent bits, but codes of format '{p.format}' have "
            f"{p.quant.weight.dtype.exponent_bits}; use bf16, or the family dequantize"
        ),
    ),
    _range("block_m", 1, BLOCK_M_MOST),
    _range("tiles_n", 1, TILES_N_MOST),
    _range("warps", 1, 32),
    _range("split_k", 1, SPLIT_K_MOST),
    _range("num_stages", 0, STAGES_MOST),
    _range("x_stages", 1, X_STAGES_MOST),
    _range("blocks_per_sm", 1, 16),
    _range("dependent_launch", 0, 1),
    _range("warpgroup", 0, 1),
    _range("exact_codes", 0, 1),
    _rule(
        "skinny_stage_tiles",
        lambda c, p, d: (
            c.stage_tiles >= 1
            and c.tiles_n % c.stage_tiles == 0
            and (c.num_stages > 0 or c.stage_tiles == 1)
        ),
        lambda c, p, d: (
            "`tiles_n % stage_tiles == 0`, and 1 where num_stages is 0, must hold, but got "
            f"stage_tiles={c.stage_tiles}, tiles_n={c.tiles_n}, num_stages={c.num_stages}"
        ),
        static=True,
    ),
    _rule(
        "skinny_warpgroup_knobs",
        lambda c, p, d: (
            not c.warpgroup
            or (c.warps % 4 == 0 and c.num_stages >= 1 and c.x_stages >= 2 and not c.exact_codes)
        ),
        lambda c, p, d: (
            "warpgroups take `warps % 4 == 0`, `num_stages >= 1`, `x_stages >= 2` and exact_codes "
            f"0, but got {c.warps}, {c.num_stages}, {c.x_stages} and {c.exact_codes}"
        ),
        static=True,
    ),
    _rule(
        "skinny_walk_knobs",
        lambda c, p, d: c.walk == 0 or (c.walk == 1 and _walks(c)),
        lambda c, p, d: (
            "walk is 0, or 1 with `num_stages >= 1`, x_stages 1, split_k 1, warpgroup 0, but got "
            f"{c.walk} with {c.num_stages}, {c.x_stages}, {c.split_k} and {c.warpgroup}"
        ),
    ),
    _rule(
        "skinny_walk_experts",
        lambda c, p, d: (
            not c.walk or (p.op == "moe" and not x_by_element(p) and c.warps <= -(-p.k // 128))
        ),
        lambda c, p, d: (
            "blocks walk through tiles of experts, `k % 8 == 0`, no act-order, and a group of 128 "
            f"columns for each warp, but got op '{p.op}', k={p.k}, act_order={p.act_order} and "
            f"warps={c.warps}"
        ),
    ),
    _rule(
        "skinny_warpgroup_device",
        lambda c, p, d: not c.warpgroup or capability(d) == (9, 0),
        lambda c, p, d: (
            f"warpgroup products need compute capability 9.0, but '{d.name}' has "
            f"{'.'.join(map(str, capability(d)))}"
        ),
        static=True,
    ),
    _rule(
        "skinny_warpgroup_weights",
        lambda c, p, d: not c.warpgroup or warpgroup_takes(p),
        lambda c, p, d: (
            "warpgroup products take `k % 8 == 0`, no act-order, and, of groups under 128, no "
            "float zero points and scales of the activation's type, but got format "
            f"'{p.format}', {p.activation_dtype}, k={p.k}, act_order={p.act_order}"
        ),
    ),
    _needs("skinny_ring_device", lambda c: c.num_stages > 0, (8, 0), "a ring of weight stages"),
    _needs("skinny_cluster_device", lambda c: c.split_k > 1, (9, 0), "split_k over a cluster"),
    _needs("skinny_dependent_device", lambda c: c.dependent_launch, (9, 0), "a dependent launch"),
    _rule(
        "skinny_experts_registers",
        lambda c, p, d: (
            p.op == "dense" or c.walk or c.warpgroup or _registers(c, p) <= _registers_most(c)
        ),
        lambda c, p, d: (
            f"a thread would need {_registers(c, p)} registers, but gets {_registers_most(c)}; "
            "lower tiles_n, warps or blocks_per_sm"
        ),
    ),
    _rule(
        "skinny_smem_fits",
        lambda c, p, d: skinny_smem_bytes(c, p) <= smem_per_block(d),
        lambda c, p, d: (
            f"`smem_bytes <= {smem_per_block(d)}` must hold on '{d.name}', but got "
            f"{skinny_smem_bytes(c, p)}"
        ),
    ),
    _rule(
        "skinny_blocks_per_sm_fit",
        lambda c, p, d: blocks_fit(d, c.blocks_per_sm, c.warps * 32, skinny_smem_bytes(c, p)),
        lambda c, p, d: (
            f"{c.blocks_per_sm} blocks of {c.warps * 32} threads and {skinny_smem_bytes(c, p)} "
            f"bytes must fit one multiprocessor of '{d.name}'; lower blocks_per_sm"
        ),
    ),
    _rule(
        "skinny_grid_fits",
        lambda c, p, d: -(-p.n // skinny_block_rows(c)) * c.split_k <= GRID_Y_MOST,
        lambda c, p, d: (
            f"`ceil(n / {skinny_block_rows(c)}) * split_k <= {GRID_Y_MOST}` must hold, but got "
            f"n={p.n}, split_k={c.split_k}"
        ),
    ),
)
