"""What the wgmma family (many rows of x, products of whole warpgroups) can run on a device."""

from __future__ import annotations

from functools import partial

from humming.spec.config import WgmmaConfig
from humming.spec.layouts import cuda_group_size
from humming.spec.legality.cuda import problem_rules
from humming.spec.legality.rule import Rule, problem_rule
from humming.spec.legality.warpgroups import (
    FILL_REGISTERS,
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

STAGES_MOST = 32
STORES_MOST = 16
_STAGE_K = 64
_STORES_REGISTERS = 10  # of a thread, beside the others
_WORKING_REGISTERS, _FACTOR_REGISTERS = 42, 4  # of a thread, beside sums and fragments


def wgmma_staged_rows(config: WgmmaConfig) -> int:
    """Rows of x that a piece of the output has."""
    wide = config.block_m % 32 == 0 and config.blocks_per_sm == 1
    wide = wide and config.tiles_n * config.block_m // 32 >= config.split_k
    return 32 if wide else 16


def wgmma_smem_bytes(config: WgmmaConfig, problem: Problem) -> int:
    """Bytes of shared memory of a block: what the kernel's plan adds up to, and asserts."""
    bits = problem.quant.weight.dtype.bits
    stage = config.block_m * _STAGE_K * 2 + wgmma_block_rows(config) * _STAGE_K * bits // 8
    columns, staged_columns = config.block_m // 8, wgmma_staged_rows(config) // 8
    staged = config.num_stores * staged_columns * 8 * 128 * config.tiles_n
    pieces = -(-(config.tiles_n * columns // staged_columns) // config.split_k)
    exchange = (config.split_k - 1) * pieces * staged_columns * 2048
    # barriers first; its base is aligned to 1024 by hand
    rings = 1024 + config.num_stages * stage + config.warpgroups * exchange
    return -(-rings // 1024) * 1024 + config.warpgroups * staged + 1024


def wgmma_registers(config: WgmmaConfig, problem: Problem) -> tuple[int, int]:
    """(what a thread that multiplies wants, what it gets)."""
    tiles, columns = config.tiles_n, config.tiles_n * config.block_m
    crowded = tiles > 2 or config.blocks_per_sm > 1
    sets = 2 if tiles > 1 and columns > 128 and crowded else 4  # of fragments
    wanted = columns // 2 + 4 * tiles * sets + _WORKING_REGISTERS
    wanted += tiles * _tile_registers(problem)
    wanted += _STORES_REGISTERS if config.num_stores > 1 else 0
    return wanted, thread_registers(config, FILL_REGISTERS)[0]


def _tile_registers(problem: Problem) -> int:
    """What a tile of 64 rows of w keeps besides: codes, where scales come from, scales brought
    ahead, and what is made of them."""
    weight, size = problem.quant.weight, cuda_group_size(problem.quant.weight)
    groups = 128 // size if size else 0  # of 128 columns
    return weight.dtype.bits + 2 + groups * (2 if weight.zero_point else 1) + _FACTOR_REGISTERS


_rule, _range = partial(family_rule, "wgmma"), partial(range_rule, "wgmma")

RULES: tuple[Rule, ...] = (
    # All but bf16's: the one architecture that there is has it.
    *(
        r
        for r in problem_rules("wgmma", every_format=True, experts=True)
        if r.name != "wgmma_bf16_device"
    ),
    hopper_rule("wgmma"),
    problem_rule(
        "wgmma",
        "wgmma_exponents",
        lambda p, d: p.activation_dtype != "fp16" or p.quant.weight.dtype.exponent_bits <= 5,
        lambda p, d: (
            f"fp16 has 5 exponent bits, but codes of format '{p.format}' have "
            f"{p.quant.weight.dtype.exponent_bits}; use bf16, or the family dequantize"
        ),
    ),
    problem_rule(
        "wgmma",
        "wgmma_experts_order",
        lambda p, d: p.op == "dense" or not (p.act_order or p.k % 8),
        lambda p, d: (
            "family 'wgmma' takes experts without act-order and `k % 8 == 0`, but got "
            f"act_order={p.act_order}, k={p.k}; the family skinny takes them"
        ),
    ),
    _rule(
        "experts_knobs",
        lambda c, p, d: (
            p.op == "dense" or (c.cluster_n == c.split_k == c.num_stores == 1 and not c.stream_k)
        ),
        lambda c, p, d: (
            "experts take cluster_n, split_k and num_stores 1 and stream_k 0, but got "
            f"{c.cluster_n}, {c.split_k}, {c.num_stores} and {c.stream_k}"
        ),
    ),
    _rule(
        "experts_gather",
        lambda c, p, d: p.op == "dense" or c.block_m <= most_gathered(c),
        lambda c, p, d: (
            f"`block_m <= {most_gathered(c)}` must hold, rows that its registers can gather, but "
            f"got block_m={c.block_m}"
        ),
    ),
    *tile_rules("wgmma"),
    _range("num_stages", 3, STAGES_MOST),
    _range("num_stores", 1, STORES_MOST),
    *room_rules("wgmma", wgmma_registers, wgmma_smem_bytes),
)
