"""What families of whole warpgroups share (wgmma, wgmma8): tiles, who computes them, and the rules
that both keep. What only one of them asks stands in its own module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from humming.spec.config import Wgmma8Config, WgmmaConfig
from humming.spec.legality.cuda import blocks_fit, capability, smem_per_block
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

Config = WgmmaConfig | Wgmma8Config

UNIT_K = 128
FILL_REGISTERS = 32  # of a thread that fills
_BLOCK_M_MOST = 256
_LEAST_UNITS = 4  # of k, in a run: fewer cost more to meet than they save
_SHARERS = 16  # runs of a tile: what a word of state has bits for
_LARGE_CLUSTERS = 0.91  # part of the multiprocessors that clusters of four find room on at once
_REGISTERS = 65536  # of a multiprocessor
_REGISTERS_MOST = 240  # of a thread
_COUNT_MOST = 2**30  # of rows and of tiles: they are counted in 32 bits


def wgmma_block_rows(config: Config) -> int:
    """Rows of w that one output tile has."""
    return 64 * config.tiles_n * max(1, config.warpgroups // max(config.k_warpgroups, 1))


def wgmma_threads(config: Config) -> int:
    """Threads of a block: its warpgroups, and one more that brings what they multiply."""
    return 128 * (config.warpgroups + 1)


@dataclass(frozen=True)
class WgmmaDeal:
    """Who computes what: `whole` tiles by one cluster each, the others, `streamed`, cut into `runs`
    along k. Tiles are those of a cluster's blocks together."""

    clusters: int
    whole: int
    runs: int
    streamed: int


def wgmma_deal(config: Config, m: int, n: int, k: int, sm_count: int) -> WgmmaDeal:
    """How a call of this shape spreads over a device of `sm_count` multiprocessors."""
    rows, cluster = wgmma_block_rows(config) * config.cluster_n, config.cluster_n * config.split_k
    tiles = -(-m // config.block_m) * -(-n // rows)
    room = _LARGE_CLUSTERS if cluster > 2 else 1.0
    clusters = max(1, int(sm_count * config.blocks_per_sm // cluster * room))
    rest = tiles % clusters
    # Whole shares of a tile: a run that straddles two tiles would have to meet others twice.
    shares = min(clusters // max(rest, 1), _SHARERS, -(-k // UNIT_K) // _LEAST_UNITS)
    if not config.stream_k or rest == 0 or shares < 2:
        return WgmmaDeal(min(tiles, clusters), tiles, 0, 0)
    runs = rest * shares
    return WgmmaDeal(clusters if tiles > rest else runs, tiles - rest, runs, rest)


def thread_registers(config: Config, least: int) -> tuple[int, int]:
    """(what a thread that multiplies gets, what is left to one that fills: `least` or more)."""
    even = _REGISTERS // (config.blocks_per_sm * wgmma_threads(config)) // 8 * 8
    pool = min(even, _REGISTERS_MOST) * (config.warpgroups + 1)
    share = min((pool - least) // max(config.warpgroups, 1) // 8 * 8, _REGISTERS_MOST)
    return share, pool - share * config.warpgroups


def most_gathered(config: Config, least: int = FILL_REGISTERS) -> int:
    """Rows of x that a block has registers for, of experts: the filling warpgroup what the others
    leave, `least` at the least; more than two warpgroups have none to spare for so many sums."""
    return 128 if config.warpgroups <= 2 and thread_registers(config, least)[1] >= least + 8 else 64


def hopper_rule(family: str) -> Rule:
    """Only one architecture has products of whole warpgroups."""
    return problem_rule(
        family,
        f"{family}_hopper_device",
        lambda p, d: capability(d) == (9, 0),
        lambda p, d: (
            f"family '{family}' needs compute capability 9.0, but '{d.name}' has "
            f"{'.'.join(map(str, capability(d)))}"
        ),
        static=True,
    )


def family_rule(
    family: str,
    name: str,
    holds: Callable[..., bool],
    says: Callable[..., str],
    static: bool = False,
) -> Rule:
    """A rule of a config, under `family`'s name."""
    return config_rule(family, f"{family}_{name}", holds, says, static)


def range_rule(family: str, knob: str, least: int, most: int) -> Rule:
    """A knob's least and greatest value."""
    return family_rule(
        family,
        f"{knob}_range",
        lambda c, p, d: least <= getattr(c, knob) <= most,
        lambda c, p, d: (
            f"`{least} <= {knob} <= {most}` must hold, but got {knob}={getattr(c, knob)}"
        ),
        static=True,
    )


def tile_rules(family: str) -> tuple[Rule, ...]:
    """Which tiles and clusters there are, and who shares what."""
    rule, ranged = partial(family_rule, family), partial(range_rule, family)
    return (
        rule(
            "block_m",
            lambda c, p, d: (
                16 <= c.block_m <= _BLOCK_M_MOST
                and c.block_m % (16 if c.block_m <= 128 else 32) == 0
            ),
            lambda c, p, d: (
                "block_m must be a multiple of 16 up to 128, or of 32 up to 256, but got "
                f"block_m={c.block_m}"
            ),
            static=True,
        ),
        ranged("warpgroups", 1, 4),
        ranged("tiles_n", 1, 4),
        rule(
            "cluster_n",
            lambda c, p, d: c.cluster_n in (1, 2, 4),
            lambda c, p, d: f"cluster_n must be 1, 2 or 4, but got {c.cluster_n}",
            static=True,
        ),
        rule(
            "cluster_shares_x",
            lambda c, p, d: c.block_m % (8 * c.cluster_n) == 0,
            lambda c, p, d: (
                "`block_m % (8 * cluster_n) == 0` must hold, but got "
                f"block_m={c.block_m}, cluster_n={c.cluster_n}"
            ),
            static=True,
        ),
        *_split_k_rules(family),
        ranged("raster_group_m", 1, 64),
        ranged("blocks_per_sm", 1, 4),
        ranged("stream_k", 0, 1),
        ranged("dependent_launch", 0, 1),
    )


def _split_k_rules(family: str) -> tuple[Rule, ...]:
    """Blocks of a cluster that share k."""
    return (
        family_rule(
            family,
            "split_k",
            lambda c, p, d: (
                c.split_k in (1, 2, 4)
                and (c.split_k == 1 or (c.cluster_n == 1 and c.stream_k == 0))
            ),
            lambda c, p, d: (
                "split_k must be 1, 2 or 4, and not beside cluster_n or stream_k, but got "
                f"split_k={c.split_k}, cluster_n={c.cluster_n}, stream_k={c.stream_k}"
            ),
            static=True,
        ),
        family_rule(
            family,
            "split_k_shares",
            lambda c, p, d: -(-p.k // UNIT_K) >= c.split_k,
            lambda c, p, d: (
                f"each of split_k={c.split_k} blocks must have 128 columns or a part of them, but "
                f"got k={p.k}"
            ),
        ),
    )


def room_rules(
    family: str,
    registers: Callable[..., tuple[int, int]],
    smem_bytes: Callable[..., int],
) -> tuple[Rule, ...]:
    """Whether registers, counters and shared memory hold it; both functions take (config, problem)
    and give what a thread that multiplies wants and gets, and what a block has."""
    rule = partial(family_rule, family)
    return (
        rule(
            "registers_fit",
            lambda c, p, d: registers(c, p)[0] <= registers(c, p)[1],
            lambda c, p, d: (
                f"a thread would need {registers(c, p)[0]} registers, but gets "
                f"{registers(c, p)[1]}; lower tiles_n or block_m"
            ),
        ),
        rule(
            "tiles_countable",
            lambda c, p, d: max(p.m, p.n, _tiles(c, p)) <= _COUNT_MOST,
            lambda c, p, d: (
                f"m, n and their tiles must not be more than {_COUNT_MOST}, but got m={p.m}, "
                f"n={p.n}, {_tiles(c, p)} tiles"
            ),
        ),
        rule(
            "smem_fits",
            lambda c, p, d: smem_bytes(c, p) <= smem_per_block(d),
            lambda c, p, d: (
                f"`smem_bytes <= {smem_per_block(d)}` must hold on '{d.name}', but got "
                f"{smem_bytes(c, p)}; lower num_stages"
            ),
        ),
        rule(
            "blocks_per_sm_fit",
            lambda c, p, d: blocks_fit(d, c.blocks_per_sm, wgmma_threads(c), smem_bytes(c, p)),
            lambda c, p, d: (
                f"{c.blocks_per_sm} blocks of {wgmma_threads(c)} threads and {smem_bytes(c, p)} "
                f"bytes must fit one multiprocessor of '{d.name}'; lower blocks_per_sm"
            ),
        ),
    )


def _tiles(config: Config, problem: Problem) -> int:
    return -(-problem.m // config.block_m) * -(-problem.n // wgmma_block_rows(config))
