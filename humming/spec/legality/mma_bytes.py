"""What the family mma can run where it multiplies codes, in 8 or 4 bits: its further rules and its
shared memory. Where it multiplies numbers of 16 bits is mma.py."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.carriers import CARRIERS, block_scaled, carrier, takes_scales_along
from humming.spec.config import MmaConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT, packed_group_size, tile_scaled
from humming.spec.legality.cuda import capability
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

SUMMED_MOST = 2**17
"""Columns whose products of 8-bit integers fit a sum of 32 bits."""
PROMOTED = (128, 64, 32)
"""Columns whose sums may be promoted to fp32 at a time."""

_STEPS_OF_LINE = 4


def multiplies_codes(problem: Problem) -> bool:
    """Whether the family multiplies codes for `problem`, not numbers of 16 bits."""
    return problem.layout == CUDA_A8_LAYOUT


def line_k(config: MmaConfig) -> int:
    """Columns of x in 128 bytes: what a warp takes at least."""
    return 256 if config.narrow else 128


def promoted_columns(problem: Problem, narrow: int = 0) -> int:
    """Columns of k whose sums become fp32 at a time, to be scaled; 0 = those over all of k."""
    if narrow and block_scaled(problem.format):
        return 0
    activation = problem.quant.activation
    sizes = [packed_group_size(CUDA_A8_LAYOUT, problem.quant.weight, problem.k)]
    sizes.append((activation.group_size if activation else None) or 0)
    if any(sizes):
        fit = (columns for columns in PROMOTED if all(size % columns == 0 for size in sizes))
        return next(fit, PROMOTED[-1])
    whole = carrier(problem.format) == "int8"
    return PROMOTED[0] if whole and problem.k > SUMMED_MOST else 0


def mma_bytes_ring(config: MmaConfig, problem: Problem) -> int:
    """Bytes of shared memory of a block's stages."""
    weight, activation = problem.quant.weight, problem.quant.activation
    row_tiles = config.block_n // 16
    x = config.block_m * config.block_k // (2 if config.narrow else 1)
    codes = config.block_n * config.block_k * weight.dtype.bits // 8
    size = packed_group_size(CUDA_A8_LAYOUT, weight, problem.k)
    of_group = 4 if tile_scaled(CUDA_A8_LAYOUT, weight) else 32
    scales = row_tiles * (config.block_k // size if size else 0) * of_group
    scales = -(-scales // 16) * 16 * (2 if weight.zero_point else 1)
    of_x = 0
    if activation is not None and activation.group_size:
        along = config.narrow and block_scaled(problem.format)
        part = activation.group_size if along else promoted_columns(problem)
        of_x = config.block_k // part * config.block_m * 4
    return config.num_stages * -(-(x + codes + scales + of_x) // 128) * 128


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = True
) -> Rule:
    return config_rule(
        "mma",
        f"mma_{name}",
        lambda c, p, d: not multiplies_codes(p) or holds(c, p, d),
        says,
        static,
    )


def _problem_rule(
    name: str,
    holds: Callable[[Problem, Device], bool],
    says: Callable[[Problem, Device], str],
    static: bool = False,
) -> Rule:
    def whole(problem: Problem, device: Device) -> bool:
        return not multiplies_codes(problem) or holds(problem, device)

    return problem_rule("mma", f"mma_{name}", whole, says, static)


def _able(problem: Problem, device: Device) -> bool:
    held = carrier(problem.format)
    if held is None:
        return takes_scales_along(problem.format, capability(device))
    return capability(device) >= CARRIERS[held]


def _sums(config: MmaConfig, problem: Problem) -> int:
    """Registers of a thread that hold sums, those of a group and scales of x included."""
    tile = config.block_m * config.block_n * config.warps_k
    of_tile = tile // (32 * config.warps) if config.warps else 0
    step = line_k(config) // _STEPS_OF_LINE
    of_tile *= 2 if promoted_columns(problem, config.narrow) > step else 1
    activation = problem.quant.activation
    grouped = activation is not None and activation.group_size is not None
    columns = config.block_m // 8 // max(config.warps_m, 1)
    return of_tile + (4 * columns if grouped else 0)


def _seen(config: MmaConfig, problem: Problem, device: Device) -> bool:
    """Whether such a sharing of k was run on a GPU, where there is one to run."""
    if capability(device) != (9, 0):
        return True
    activation = problem.quant.activation
    of_rows = activation is None or activation.group_size is None
    return not config.stream_k and (of_rows or config.split_k == 1 or bool(config.cluster))


def _puts_scales(config: MmaConfig, problem: Problem) -> bool:
    """Whether threads put scales of groups into the codes of experts, beside the places of rows."""
    scaled = problem.quant.weight.scale_dtype is not None
    return problem.op == "moe" and scaled and not config.narrow


def _sums_most(config: MmaConfig) -> int:
    return 144 if config.warps * config.blocks_per_sm <= 8 else 80


def _narrow_takes(problem: Problem) -> bool:
    if block_scaled(problem.format):
        return True
    weight, activation = problem.quant.weight, problem.quant.activation
    of_x = activation is not None and activation.dtype.name == "int4"
    columns = promoted_columns(problem)
    return of_x and weight.dtype.name == "int4" and columns % 64 == 0


RULES: tuple[Rule, ...] = (
    _problem_rule(
        "bytes_format",
        lambda p, d: carrier(p.format) is not None or block_scaled(p.format),
        lambda p, d: (
            f"layout '{CUDA_A8_LAYOUT}' is for formats whose codes of x and w fit one type of "
            f"8 bits, but got '{p.format}'; pack the weight for this GPU again"
        ),
    ),
    _problem_rule(
        "bytes_device",
        _able,
        lambda p, d: (
            f"'{d.name}', of compute capability {'.'.join(map(str, capability(d)))}, does not "
            f"multiply the codes of format '{p.format}'; pack the weight for it again"
        ),
        static=True,
    ),
    _rule(
        "bytes_block_k_multiple",
        lambda c, p, d: c.block_k % (line_k(c) * max(c.warps_k, 1)) == 0,
        lambda c, p, d: (
            f"`block_k % ({line_k(c)} * warps_k) == 0` must hold where codes are multiplied, but "
            f"got block_k={c.block_k}, warps_k={c.warps_k}"
        ),
    ),
    _rule(
        "bytes_shares_seen",
        lambda c, p, d: _seen(c, p, d),
        lambda c, p, d: (
            "codes are multiplied without stream_k, and where groups of x have scales k is shared "
            "by a cluster or not at all, as no more was seen right on a GPU yet, but got "
            f"split_k={c.split_k}, cluster={c.cluster}, stream_k={c.stream_k}"
        ),
        static=False,
    ),
    _rule(
        "bytes_accumulators_fit",
        lambda c, p, d: _sums(c, p) <= _sums_most(c),
        lambda c, p, d: (
            f"a thread's sums, with those of a group, must fit {_sums_most(c)} registers, but "
            f"got {_sums(c, p)}; take smaller tiles or more warps"
        ),
    ),
    _rule(
        "bytes_experts_registers",
        lambda c, p, d: not _puts_scales(c, p) or 2 * _sums(c, p) <= _sums_most(c),
        lambda c, p, d: (
            f"a thread's sums must fit {_sums_most(c) // 2} registers where it puts scales into "
            f"experts' codes, but got {_sums(c, p)}; take smaller tiles or more warps"
        ),
        static=False,
    ),
    config_rule(
        "mma",
        "mma_narrow_range",
        lambda c, p, d: c.narrow == 0 or (c.narrow == 1 and multiplies_codes(p)),
        lambda c, p, d: (
            f"narrow must be 0, or 1 where codes are multiplied, but got narrow={c.narrow}"
        ),
        static=False,
    ),
    _rule(
        "narrow_format",
        lambda c, p, d: _narrow_takes(p) if c.narrow else carrier(p.format) is not None,
        lambda c, p, d: (
            "products of 4 bits are of int4 by int4 in groups of 64 or 128, of mxfp4 by mxfp4, and "
            "of nvfp4 by nvfp4, which has no others, but got format "
            f"'{p.format}' with narrow={c.narrow}"
        ),
        static=False,
    ),
    _rule(
        "narrow_device",
        lambda c, p, d: (
            not c.narrow
            or takes_scales_along(p.format, capability(d))
            or (capability(d) < (9, 0) and not block_scaled(p.format))
        ),
        lambda c, p, d: (
            "products of 4 bits need a compute capability from 7.5 to 8.9, or 12.0 for fp4, but "
            f"'{d.name}' has {'.'.join(map(str, capability(d)))}; take narrow 0"
        ),
    ),
)
