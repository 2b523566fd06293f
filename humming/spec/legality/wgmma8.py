"""What the wgmma8 family (products of bytes by whole warpgroups) can run on a device."""

from __future__ import annotations

from functools import partial

from humming.spec.carriers import carrier
from humming.spec.config import Wgmma8Config
from humming.spec.formats import TensorFormat
from humming.spec.layouts import CUDA_A8_LAYOUT, packed_group_size, tile_scaled
from humming.spec.legality.cuda import problem_rules
from humming.spec.legality.rule import Rule, problem_rule
from humming.spec.legality.warpgroups import (
    FILL_REGISTERS,
    UNIT_K,
    family_rule,
    hopper_rule,
    most_gathered,
    range_rule,
    room_rules,
    thread_registers,
    tile_rules,
    wgmma_block_rows,
)
from humming.spec.problem import Problem

_GATHER_REGISTERS = 48  # of a thread that fills, of experts
_WORKING_REGISTERS = 40  # of a thread, beside sums and fragments
_MEETING_REGISTERS = 8  # of those, where blocks meet; those of experts do not
_TURN_REGISTERS = 10  # of a thread, where warpgroups take turns and codes are bytes
_PART_ROWS = 128  # of x, whose products are promoted at once
_PROMOTED_BLOCKS = 2
_SUMMED_MOST = 2**17  # columns whose products of int8 by int8 fit 32 bits


def wgmma8_smem_bytes(config: Wgmma8Config, problem: Problem) -> int:
    """Bytes of shared memory of a block: what the kernel's plan adds up to, and asserts."""
    weight, activation = problem.quant.weight, problem.quant.activation
    rows = wgmma_block_rows(config)
    stage = config.block_m * UNIT_K + rows * UNIT_K * weight.dtype.bits // 8
    if activation is not None and activation.group_size:
        stage += -(-config.block_m * 4 // 128) * 128
    table = 0
    if weight.scale_dtype:  # in the ring, and a table of codes with scales on
        stage += rows * 2 * (UNIT_K // 32)
        table = 1024
    wide = config.block_m % 32 == 0 and config.blocks_per_sm == 1
    staged = (32 if wide else 16) * 128 * config.tiles_n
    # barriers first; its base is aligned to 1024 by hand
    groups = config.warpgroups // max(config.k_warpgroups, 1)
    turns = (config.k_warpgroups - 1) * config.tiles_n * config.block_m // 8 * 2048
    columns, at_once = config.block_m // 8, 4 if wide else 2
    pieces = -(-(config.tiles_n * columns // at_once) // max(config.split_k, 1))
    exchange = (config.split_k - 1) * pieces * at_once * 2048
    rings = config.num_stages * stage + groups * (staged + turns + exchange)
    return 1024 + table + rings + 1024


def needs_promotion(problem: Problem) -> bool:
    """Whether sums must leave the tensor cores every 128 columns, to be scaled."""
    weight, activation = problem.quant.weight, problem.quant.activation
    of_x = activation is not None and activation.group_size is not None
    return of_x or packed_group_size(CUDA_A8_LAYOUT, weight, problem.k) == UNIT_K


def _row_groups(problem: Problem) -> bool:
    """Whether each row of w has scales of groups of 128, which a thread holds some of."""
    weight = problem.quant.weight
    size = packed_group_size(CUDA_A8_LAYOUT, weight, problem.k)
    return size == UNIT_K and not tile_scaled(CUDA_A8_LAYOUT, weight)


def _gains_bits(problem: Problem) -> bool:
    """Whether fp32 holds more of the sums than tensor cores do, and the mainloops can use it."""
    return carrier(problem.format) != "int8" and problem.quant.weight.scale_dtype is None


def wgmma8_registers(config: Wgmma8Config, problem: Problem) -> tuple[int, int]:
    """(what a thread that multiplies wants, what it gets)."""
    tiles, direct = config.tiles_n, problem.quant.weight.dtype.bits == 8
    of_experts = problem.op != "dense"
    wanted = tiles * config.block_m // 2 + _WORKING_REGISTERS
    wanted -= _MEETING_REGISTERS if of_experts else 0
    wanted += _TURN_REGISTERS if config.k_warpgroups > 1 and direct and not config.promote else 0
    if config.promote:
        wanted += min(config.block_m, _PART_ROWS) // 2 + (0 if direct else 24)
        wanted += (10 if config.k_warpgroups > 1 else 6) * tiles if _row_groups(problem) else 0
    elif not direct:
        wanted += 16 * tiles  # fragments of two steps, codes of a unit
        wanted += 8 * tiles if problem.quant.weight.scale_dtype else 0
    filling = _GATHER_REGISTERS if of_experts else FILL_REGISTERS
    return wanted, thread_registers(config, filling)[0]


def _takes(problem: Problem) -> bool:
    """Whether the mainloops know the format: which codes, and where scales go."""
    weight, activation = problem.quant.weight, problem.quant.activation
    held = carrier(problem.format)
    if activation is None or held not in ("int8", "fp8e4m3") or weight.zero_point is not None:
        return False
    if activation.scale_dtype or (activation.group_size or UNIT_K) != UNIT_K:
        return False
    if not activation.dtype.is_integer and activation.dtype.name != held:
        return False
    return _takes_codes(weight, held) and _takes_scales(weight, problem.k)


def _takes_codes(weight: TensorFormat, held: str) -> bool:
    if weight.dtype.bits == 8:
        return weight.dtype.name == held and weight.scale_dtype is None
    return weight.dtype.name == "int4" or (weight.dtype.name == "fp4e2m1" and held != "int8")


def _takes_scales(weight: TensorFormat, k: int) -> bool:
    size = packed_group_size(CUDA_A8_LAYOUT, weight, k)
    if weight.scale_dtype is not None:  # powers of two of each k32 step, put into the codes
        return weight.scale_dtype == "e8m0" and size == 32 and weight.dtype.bits == 4
    return size in (0, UNIT_K)


def _mixes(problem: Problem) -> bool:
    """Whether scales are of groups of x, and put into the codes of w: no mainloop has both."""
    weight, activation = problem.quant.weight, problem.quant.activation
    return bool(weight.scale_dtype and activation is not None and activation.group_size)


_rule, _range = partial(family_rule, "wgmma8"), partial(range_rule, "wgmma8")

_LEFT_OUT = ("layout", "bf16_device", "format", "no_act_order", "k_multiple")
"""Rules that CUDA families share and this one does not: x comes padded, and in the order of w."""

RULES: tuple[Rule, ...] = (
    *(
        rule
        for rule in problem_rules("wgmma8", experts=True)
        if rule.name.removeprefix("wgmma8_") not in _LEFT_OUT
    ),
    hopper_rule("wgmma8"),
    problem_rule(
        "wgmma8",
        "wgmma8_layout",
        lambda p, d: p.layout == CUDA_A8_LAYOUT,
        lambda p, d: (
            f"family 'wgmma8' reads layout '{CUDA_A8_LAYOUT}', but got '{p.layout}'; repack the "
            "layer"
        ),
    ),
    problem_rule(
        "wgmma8",
        "wgmma8_format",
        lambda p, d: _takes(p) and not _mixes(p),
        lambda p, d: (
            "family 'wgmma8' runs weights of int4, fp4e2m1, mxfp4, or of x's own int8 or fp8e4m3, "
            "with scales a row, or of groups or blocks of a multiple of 128, and x with scales a "
            f"token or a group of 128, but got format '{p.format}'; name the weight's part of it"
        ),
    ),
    problem_rule(
        "wgmma8",
        "wgmma8_sums_fit",
        lambda p, d: carrier(p.format) != "int8" or p.k <= _SUMMED_MOST,
        lambda p, d: f"`k <= {_SUMMED_MOST}` must hold for sums of int8 products, but got k={p.k}",
    ),
    problem_rule(
        "wgmma8",
        "wgmma8_experts_order",
        lambda p, d: p.op == "dense" or not p.act_order,
        lambda p, d: (
            "family 'wgmma8' takes experts without act-order, as x is quantized once for all of "
            f"them, but got act_order={p.act_order}; pack them for products of 16 bits"
        ),
    ),
    problem_rule(
        "wgmma8",
        "wgmma8_experts_input",
        lambda p, d: p.op == "dense" or p.quant.activation is None or p.quant.activation.dynamic,
        lambda p, d: (
            "family 'wgmma8' quantizes activations of experts as they come, but got format "
            f"'{p.format}'; name it without the t of its activations"
        ),
    ),
    _rule(
        "experts_knobs",
        lambda c, p, d: p.op == "dense" or (c.cluster_n == c.split_k == 1 and not c.stream_k),
        lambda c, p, d: (
            "experts take cluster_n and split_k 1 and stream_k 0, but got "
            f"{c.cluster_n}, {c.split_k} and {c.stream_k}"
        ),
    ),
    _rule(
        "experts_gather",
        lambda c, p, d: p.op == "dense" or c.block_m <= most_gathered(c, _GATHER_REGISTERS),
        lambda c, p, d: (
            f"`block_m <= {most_gathered(c, _GATHER_REGISTERS)}` must hold, rows that registers "
            f"can gather, but got block_m={c.block_m}"
        ),
    ),
    *tile_rules("wgmma8"),
    _rule(
        "rows_in_a_copy",
        lambda c, p, d: c.warpgroups * c.tiles_n <= 4 * c.k_warpgroups,
        lambda c, p, d: (
            "`warpgroups * tiles_n <= 4 * k_warpgroups` must hold, as a copy brings 256 rows of w, "
            f"but got warpgroups={c.warpgroups}, tiles_n={c.tiles_n}, k_warpgroups={c.k_warpgroups}"
        ),
        static=True,
    ),
    _range("num_stages", 2, 32),
    _range("promote", 0, 1),
    _rule(
        "k_warpgroups",
        lambda c, p, d: c.k_warpgroups in (1, 2, 4),
        lambda c, p, d: f"k_warpgroups must be 1, 2 or 4, but got {c.k_warpgroups}",
        static=True,
    ),
    _rule(
        "takes_turns",
        lambda c, p, d: c.warpgroups % max(c.k_warpgroups, 1) == 0,
        lambda c, p, d: (
            "`warpgroups % k_warpgroups == 0` must hold, but got "
            f"warpgroups={c.warpgroups}, k_warpgroups={c.k_warpgroups}"
        ),
        static=True,
    ),
    _rule(
        "stages_of_turns",
        lambda c, p, d: (
            c.k_warpgroups < c.num_stages and c.num_stages % max(c.k_warpgroups, 1) == 0
        ),
        lambda c, p, d: (
            "num_stages must be k_warpgroups twice or more times, as each warpgroup has stages of "
            f"its own, but got k_warpgroups={c.k_warpgroups}, num_stages={c.num_stages}"
        ),
        static=True,
    ),
    _rule(
        "promotes_groups",
        lambda c, p, d: c.promote == 1 or not needs_promotion(p),
        lambda c, p, d: f"promote must be 1 for format '{p.format}', whose groups have scales",
    ),
    _rule(
        "promotes_sums",
        lambda c, p, d: c.promote == 0 or needs_promotion(p) or _gains_bits(p),
        lambda c, p, d: (
            f"promote must be 0 for format '{p.format}', whose sums are exact or whose codes take "
            "scales on"
        ),
    ),
    _rule(
        "promoted_blocks",
        lambda c, p, d: c.promote == 0 or c.blocks_per_sm <= _PROMOTED_BLOCKS,
        lambda c, p, d: (
            f"`blocks_per_sm <= {_PROMOTED_BLOCKS}` must hold where sums are promoted, but got "
            f"{c.blocks_per_sm}; more were not shown to give equal bits"
        ),
    ),
    *room_rules("wgmma8", wgmma8_registers, wgmma8_smem_bytes),
)
