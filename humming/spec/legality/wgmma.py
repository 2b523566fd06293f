"""What the wgmma family (many rows of x, products of whole warpgroups) can run on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming.spec.config import Wgmma8Config, WgmmaConfig
from humming.spec.layouts import cuda_group_size
from humming.spec.legality.cuda import blocks_fit, capability, problem_rules, smem_per_block
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

BLOCK_M_MOST = 256
WARPGROUPS_MOST = 4
TILES_N_MOST = 4
STAGES_MOST = 32
STORES_MOST = 16
_UNIT_K, _STAGE_K = 128, 64
_LEAST_UNITS = 4  # of k, in a run: fewer cost more to meet than they save
_SHARERS = 16  # runs of a tile: what a word of state has bits for
_LARGE_CLUSTERS = 0.91  # part of the multiprocessors that clusters of four find room on at once
_REGISTERS = 65536  # of a multiprocessor
_REGISTERS_MOST = 240  # of a thread
_FILL_REGISTERS = 32
_COUNT_MOST = 2**30  # of rows and of tiles: they are counted in 32 bits
_STORES_REGISTERS = 10  # of a thread, beside the others
_WORKING_REGISTERS, _FACTOR_REGISTERS = 42, 4  # of a thread, beside sums and fragments


def wgmma_block_rows(config: WgmmaConfig | Wgmma8Config) -> int:
    """Rows of w that one output tile has."""
    return 64 * config.tiles_n * max(1, config.warpgroups // max(config.k_warpgroups, 1))


def wgmma_threads(config: WgmmaConfig | Wgmma8Config) -> int:
    """Threads of a block: its warpgroups, and one more that brings what they multiply."""
    return 128 * (config.warpgroups + 1)


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


@dataclass(frozen=True)
class WgmmaDeal:
    """Who computes what: `whole` tiles by one cluster each, the others, `streamed`, cut into `runs`
    along k. Tiles are those of a cluster's blocks together."""

    clusters: int
    whole: int
    runs: int
    streamed: int


def wgmma_deal(
    config: WgmmaConfig | Wgmma8Config, m: int, n: int, k: int, sm_count: int
) -> WgmmaDeal:
    """How a call of this shape spreads over a device of `sm_count` multiprocessors."""
    rows, cluster = wgmma_block_rows(config) * config.cluster_n, config.cluster_n * config.split_k
    tiles = -(-m // config.block_m) * -(-n // rows)
    room = _LARGE_CLUSTERS if cluster > 2 else 1.0
    clusters = max(1, int(sm_count * config.blocks_per_sm // cluster * room))
    rest = tiles % clusters
    # Whole shares of a tile: a run that straddles two tiles would have to meet others twice.
    shares = min(clusters // max(rest, 1), _SHARERS, -(-k // _UNIT_K) // _LEAST_UNITS)
    if not config.stream_k or rest == 0 or shares < 2:
        return WgmmaDeal(min(tiles, clusters), tiles, 0, 0)
    runs = rest * shares
    return WgmmaDeal(clusters if tiles > rest else runs, tiles - rest, runs, rest)


def wgmma_registers(config: WgmmaConfig, problem: Problem) -> tuple[int, int]:
    """(what a thread that multiplies wants, what it gets)."""
    tiles, columns = config.tiles_n, config.tiles_n * config.block_m
    crowded = tiles > 2 or config.blocks_per_sm > 1
    sets = 2 if tiles > 1 and columns > 128 and crowded else 4  # of fragments
    wanted = columns // 2 + 4 * tiles * sets + _WORKING_REGISTERS
    wanted += tiles * _tile_registers(problem)
    wanted += _STORES_REGISTERS if config.num_stores > 1 else 0
    even = _REGISTERS // (config.blocks_per_sm * wgmma_threads(config)) // 8 * 8
    pool = min(even, _REGISTERS_MOST) * (config.warpgroups + 1) - _FILL_REGISTERS
    share = pool // config.warpgroups // 8 * 8
    return wanted, min(share, _REGISTERS_MOST)


def most_gathered(config: WgmmaConfig | Wgmma8Config, least: int = _FILL_REGISTERS) -> int:
    """Rows of x that a block has registers for, of experts: the filling warpgroup what the others
    leave, `least` at the least; more than two warpgroups have none to spare for so many sums."""
    even = _REGISTERS // (config.blocks_per_sm * wgmma_threads(config)) // 8 * 8
    pool = min(even, _REGISTERS_MOST) * (config.warpgroups + 1)
    share = min((pool - least) // config.warpgroups // 8 * 8, _REGISTERS_MOST)
    left = pool - share * config.warpgroups
    return 128 if config.warpgroups <= 2 and left >= least + 8 else 64


def _tile_registers(problem: Problem) -> int:
    """What a tile of 64 rows of w keeps besides: codes, where scales come from, scales brought
    ahead, and what is made of them."""
    weight, size = problem.quant.weight, cuda_group_size(problem.quant.weight)
    groups = 128 // size if size else 0  # of 128 columns
    return weight.dtype.bits + 2 + groups * (2 if weight.zero_point else 1) + _FACTOR_REGISTERS


def _tiles(config: WgmmaConfig, problem: Problem) -> int:
    return -(-problem.m // config.block_m) * -(-problem.n // wgmma_block_rows(config))


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("wgmma", name, holds, says, static)


def _range(knob: str, least: int, most: int) -> Rule:
    return _rule(
        f"wgmma_{knob}_range",
        lambda c, p, d: least <= getattr(c, knob) <= most,
        lambda c, p, d: (
            f"`{least} <= {knob} <= {most}` must hold, but got {knob}={getattr(c, knob)}"
        ),
        static=True,
    )


RULES: tuple[Rule, ...] = (
    # All but bf16's: the one architecture that there is has it.
    *(
        r
        for r in problem_rules("wgmma", every_format=True, experts=True)
        if r.name != "wgmma_bf16_device"
    ),
    problem_rule(
        "wgmma",
        "wgmma_hopper_device",
        lambda p, d: capability(d) == (9, 0),
        lambda p, d: (
            f"family 'wgmma' needs compute capability 9.0, but '{d.name}' has "
            f"{'.'.join(map(str, capability(d)))}"
        ),
        static=True,
    ),
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
        "wgmma_experts_knobs",
        lambda c, p, d: (
            p.op == "dense" or (c.cluster_n == c.split_k == c.num_stores == 1 and not c.stream_k)
        ),
        lambda c, p, d: (
            "experts take cluster_n, split_k and num_stores 1 and stream_k 0, but got "
            f"{c.cluster_n}, {c.split_k}, {c.num_stores} and {c.stream_k}"
        ),
    ),
    _rule(
        "wgmma_experts_gather",
        lambda c, p, d: p.op == "dense" or c.block_m <= most_gathered(c),
        lambda c, p, d: (
            f"`block_m <= {most_gathered(c)}` must hold, rows that its registers can gather, but "
            f"got block_m={c.block_m}"
        ),
    ),
    _rule(
        "wgmma_block_m",
        lambda c, p, d: (
            16 <= c.block_m <= BLOCK_M_MOST and c.block_m % (16 if c.block_m <= 128 else 32) == 0
        ),
        lambda c, p, d: (
            "block_m must be a multiple of 16 up to 128, or of 32 up to 256, but got "
            f"block_m={c.block_m}"
        ),
        static=True,
    ),
    _range("warpgroups", 1, WARPGROUPS_MOST),
    _range("tiles_n", 1, TILES_N_MOST),
    _rule(
        "wgmma_cluster_n",
        lambda c, p, d: c.cluster_n in (1, 2, 4),
        lambda c, p, d: f"cluster_n must be 1, 2 or 4, but got {c.cluster_n}",
        static=True,
    ),
    _rule(
        "wgmma_cluster_shares_x",
        lambda c, p, d: c.block_m % (8 * c.cluster_n) == 0,
        lambda c, p, d: (
            "`block_m % (8 * cluster_n) == 0` must hold, but got "
            f"block_m={c.block_m}, cluster_n={c.cluster_n}"
        ),
        static=True,
    ),
    _rule(
        "wgmma_split_k",
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
        "wgmma_split_k_shares",
        lambda c, p, d: -(-p.k // _UNIT_K) >= c.split_k,
        lambda c, p, d: (
            f"each of split_k={c.split_k} blocks must have 128 columns or a part of them, but got "
            f"k={p.k}"
        ),
    ),
    _range("num_stages", 3, STAGES_MOST),
    _range("num_stores", 1, STORES_MOST),
    _range("raster_group_m", 1, 64),
    _range("blocks_per_sm", 1, 4),
    _range("stream_k", 0, 1),
    _range("dependent_launch", 0, 1),
    _rule(
        "wgmma_registers_fit",
        lambda c, p, d: wgmma_registers(c, p)[0] <= wgmma_registers(c, p)[1],
        lambda c, p, d: (
            f"a thread would need {wgmma_registers(c, p)[0]} registers, but gets "
            f"{wgmma_registers(c, p)[1]}; lower tiles_n or block_m"
        ),
    ),
    _rule(
        "wgmma_tiles_countable",
        lambda c, p, d: max(p.m, p.n, _tiles(c, p)) <= _COUNT_MOST,
        lambda c, p, d: (
            f"m, n and their tiles must not be more than {_COUNT_MOST}, but got m={p.m}, n={p.n}, "
            f"{_tiles(c, p)} tiles"
        ),
    ),
    _rule(
        "wgmma_smem_fits",
        lambda c, p, d: wgmma_smem_bytes(c, p) <= smem_per_block(d),
        lambda c, p, d: (
            f"`smem_bytes <= {smem_per_block(d)}` must hold on '{d.name}', but got "
            f"{wgmma_smem_bytes(c, p)}; lower num_stages"
        ),
    ),
    _rule(
        "wgmma_blocks_per_sm_fit",
        lambda c, p, d: blocks_fit(d, c.blocks_per_sm, wgmma_threads(c), wgmma_smem_bytes(c, p)),
        lambda c, p, d: (
            f"{c.blocks_per_sm} blocks of {wgmma_threads(c)} threads and {wgmma_smem_bytes(c, p)} "
            f"bytes must fit one multiprocessor of '{d.name}'; lower blocks_per_sm"
        ),
    ),
)
