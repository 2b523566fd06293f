"""What the wgmma8 family (products of bytes by whole warpgroups) can run on a device."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.carriers import carrier
from humming.spec.config import Wgmma8Config
from humming.spec.formats import TensorFormat
from humming.spec.layouts import CUDA_A8_LAYOUT, packed_group_size, tile_scaled
from humming.spec.legality.cuda import (
    blocks_fit,
    capability,
    problem_rules,
    smem_per_block,
)
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.legality.wgmma import most_gathered, wgmma_block_rows, wgmma_threads
from humming.spec.problem import Problem

_UNIT_K = 128
_REGISTERS = 65536  # of a multiprocessor
_REGISTERS_MOST = 240  # of a thread
_FILL_REGISTERS, _GATHER_REGISTERS = 32, 48  # of a thread that fills; of experts
_WORKING_REGISTERS = 40  # of a thread, beside sums and fragments
_MEETING_REGISTERS = 8  # of those, where blocks meet; those of experts do not
_TURN_REGISTERS = 10  # of a thread, where warpgroups take turns and codes are bytes
_PART_ROWS = 128  # of x, whose products are promoted at once
_PROMOTED_BLOCKS = 2
_COUNT_MOST = 2**30  # of rows and of tiles: they are counted in 32 bits
_SUMMED_MOST = 2**17  # columns whose products of int8 by int8 fit 32 bits


def wgmma8_smem_bytes(config: Wgmma8Config, problem: Problem) -> int:
    """Bytes of shared memory of a block: what the kernel's plan adds up to, and asserts."""
    weight, activation = problem.quant.weight, problem.quant.activation
    rows = wgmma_block_rows(config)
    stage = config.block_m * _UNIT_K + rows * _UNIT_K * weight.dtype.bits // 8
    if activation is not None and activation.group_size:
        stage += -(-config.block_m * 4 // 128) * 128
    table = 0
    if weight.scale_dtype:  # in the ring, and a table of codes with scales on
        stage += rows * 2 * (_UNIT_K // 32)
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
    return of_x or packed_group_size(CUDA_A8_LAYOUT, weight, problem.k) == _UNIT_K


def _row_groups(problem: Problem) -> bool:
    """Whether each row of w has scales of groups of 128, which a thread holds some of."""
    weight = problem.quant.weight
    size = packed_group_size(CUDA_A8_LAYOUT, weight, problem.k)
    return size == _UNIT_K and not tile_scaled(CUDA_A8_LAYOUT, weight)


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
    even = _REGISTERS // (config.blocks_per_sm * wgmma_threads(config)) // 8 * 8
    pool = min(even, _REGISTERS_MOST) * (config.warpgroups + 1)
    pool -= _GATHER_REGISTERS if of_experts else _FILL_REGISTERS
    return wanted, min(pool // max(config.warpgroups, 1) // 8 * 8, _REGISTERS_MOST)


def _takes(problem: Problem) -> bool:
    """Whether the mainloops know the format: which codes, and where scales go."""
    weight, activation = problem.quant.weight, problem.quant.activation
    held = carrier(problem.format)
    if activation is None or held not in ("int8", "fp8e4m3") or weight.zero_point is not None:
        return False
    if activation.scale_dtype or (activation.group_size or _UNIT_K) != _UNIT_K:
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
    return size in (0, _UNIT_K)


def _mixes(problem: Problem) -> bool:
    """Whether scales are of groups of x, and put into the codes of w: no mainloop has both."""
    weight, activation = problem.quant.weight, problem.quant.activation
    return bool(weight.scale_dtype and activation is not None and activation.group_size)


def _tiles(config: Wgmma8Config, problem: Problem) -> int:
    return -(-problem.m // config.block_m) * -(-problem.n // wgmma_block_rows(config))


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("wgmma8", f"wgmma8_{name}", holds, says, static)


def _range(knob: str, least: int, most: int) -> Rule:
    return _rule(
        f"{knob}_range",
        lambda c, p, d: least <= getattr(c, knob) <= most,
        lambda c, p, d: (
            f"`{least} <= {knob} <= {most}` must hold, but got {knob}={getattr(c, knob)}"
        ),
        static=True,
    )


_LEFT_OUT = ("layout", "bf16_device", "format", "no_act_order", "k_multiple")
"""Rules that CUDA families share and this one does not: x comes padded, and in the order of w."""

RULES: tuple[Rule, ...] = (
    *(
        rule
        for rule in problem_rules("wgmma8", experts=True)
        if rule.name.removeprefix("wgmma8_") not in _LEFT_OUT
    ),
    problem_rule(
        "wgmma8",
        "wgmma8_hopper_device",
        lambda p, d: capability(d) == (9, 0),
        lambda p, d: (
            f"family 'wgmma8' needs compute capability 9.0, but '{d.name}' has "
            f"{'.'.join(map(str, capability(d)))}"
        ),
        static=True,
    ),
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
    _rule(
        "block_m",
        lambda c, p, d: (
            16 <= c.block_m <= 256 and c.block_m % (16 if c.block_m <= 128 else 32) == 0
        ),
        lambda c, p, d: (
            "block_m must be a multiple of 16 up to 128, or of 32 up to 256, but got "
            f"block_m={c.block_m}"
        ),
        static=True,
    ),
    _range("warpgroups", 1, 4),
    _range("tiles_n", 1, 4),
    _rule(
        "rows_in_a_copy",
        lambda c, p, d: c.warpgroups * c.tiles_n <= 4 * c.k_warpgroups,
        lambda c, p, d: (
            "`warpgroups * tiles_n <= 4 * k_warpgroups` must hold, as a copy brings 256 rows of w, "
            f"but got warpgroups={c.warpgroups}, tiles_n={c.tiles_n}, k_warpgroups={c.k_warpgroups}"
        ),
        static=True,
    ),
    _rule(
        "cluster_n",
        lambda c, p, d: c.cluster_n in (1, 2, 4),
        lambda c, p, d: f"cluster_n must be 1, 2 or 4, but got {c.cluster_n}",
        static=True,
    ),
    _rule(
        "cluster_shares_x",
        lambda c, p, d: c.block_m % (8 * c.cluster_n) == 0,
        lambda c, p, d: (
            "`block_m % (8 * cluster_n) == 0` must hold, but got "
            f"block_m={c.block_m}, cluster_n={c.cluster_n}"
        ),
        static=True,
    ),
    _range("num_stages", 2, 32),
    _range("raster_group_m", 1, 64),
    _range("blocks_per_sm", 1, 4),
    _range("stream_k", 0, 1),
    _range("promote", 0, 1),
    _rule(
        "split_k",
        lambda c, p, d: (
            c.split_k in (1, 2, 4) and (c.split_k == 1 or (c.cluster_n == 1 and c.stream_k == 0))
        ),
        lambda c, p, d: (
            "split_k must be 1, 2 or 4, and not beside cluster_n or stream_k, but got "
            f"split_k={c.split_k}, cluster_n={c.cluster_n}, stream_k={c.stream_k}"
        ),
        static=True,
    ),
    _rule(
        "split_k_shares",
        lambda c, p, d: -(-p.k // _UNIT_K) >= c.split_k,
        lambda c, p, d: (
            f"each of split_k={c.split_k} blocks must have 128 columns or a part of them, but got "
            f"k={p.k}"
        ),
    ),
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
    _range("dependent_launch", 0, 1),
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
    _rule(
        "registers_fit",
        lambda c, p, d: wgmma8_registers(c, p)[0] <= wgmma8_registers(c, p)[1],
        lambda c, p, d: (
            f"a thread would need {wgmma8_registers(c, p)[0]} registers, but gets "
            f"{wgmma8_registers(c, p)[1]}; lower tiles_n or block_m"
        ),
    ),
    _rule(
        "tiles_countable",
        lambda c, p, d: max(p.m, p.n, _tiles(c, p)) <= _COUNT_MOST,
        lambda c, p, d: (
            f"m, n and their tiles must not be more than {_COUNT_MOST}, but got m={p.m}, n={p.n}, "
            f"{_tiles(c, p)} tiles"
        ),
    ),
    _rule(
        "smem_fits",
        lambda c, p, d: wgmma8_smem_bytes(c, p) <= smem_per_block(d),
        lambda c, p, d: (
            f"`smem_bytes <= {smem_per_block(d)}` must hold on '{d.name}', but got "
            f"{wgmma8_smem_bytes(c, p)}; lower num_stages"
        ),
    ),
    _rule(
        "blocks_per_sm_fit",
        lambda c, p, d: blocks_fit(d, c.blocks_per_sm, wgmma_threads(c), wgmma8_smem_bytes(c, p)),
        lambda c, p, d: (
            f"{c.blocks_per_sm} blocks of {wgmma_threads(c)} threads and "
            f"{wgmma8_smem_bytes(c, p)} bytes must fit one multiprocessor of '{d.name}'; lower "
            "blocks_per_sm"
        ),
    ),
)
