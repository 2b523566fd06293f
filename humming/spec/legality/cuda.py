"""What every CUDA family asks of a problem and a device. Rules of one family stand beside it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT, LAYOUTS
from humming.spec.legality.rule import Rule, problem_rule
from humming.spec.problem import Problem

ACTIVATIONS = ("bf16", "fp16")
LEAST_CAPABILITY = (7, 5)
FORMATS = ("int4g128",)
K_MULTIPLE = 8

GRID_Y_MOST = 65535
"""Blocks along a grid's y and z on every device."""

_THREADS_PER_SM = {(7, 5): 1024, (8, 0): 2048, (9, 0): 2048, (10, 0): 2048, (10, 3): 2048}
_RESERVED_SMEM_BYTES = 1024  # of each block, taken by the system from sm_80 on


def capability(device: Device) -> tuple[int, int]:
    """Its compute capability; (0, 0) where it has none."""
    return device.compute_capability or (0, 0)


def threads_per_sm(device: Device) -> int:
    """Threads that one multiprocessor holds."""
    return _THREADS_PER_SM.get(capability(device), 1536)


def smem_per_block(device: Device) -> int:
    """Bytes of shared memory that one block may have; what every GPU has where it is not known."""
    return device.smem_bytes_per_block or 48 << 10


def blocks_fit(device: Device, blocks: int, threads: int, smem_bytes: int) -> bool:
    """Whether so many blocks find room on one multiprocessor, registers apart."""
    reserved = _RESERVED_SMEM_BYTES if capability(device) >= (8, 0) else 0
    room = device.smem_bytes_per_sm or smem_per_block(device) + reserved
    return blocks * threads <= threads_per_sm(device) and blocks * (smem_bytes + reserved) <= room


_Holds = Callable[[Problem, Device], bool]
_Says = Callable[[str, Problem, Device], str]

_SHARED: tuple[tuple[str, _Holds, _Says, bool], ...] = (
    (
        "device",
        lambda p, d: d.kind == "cuda" and capability(d) >= LEAST_CAPABILITY,
        lambda f, p, d: (
            f"family '{f}' needs an NVIDIA GPU of compute capability {_dotted(LEAST_CAPABILITY)} "
            f"or newer, but got {d.kind} '{d.name}' {_dotted(capability(d))}; use --device cpu"
        ),
        False,
    ),
    (
        "op",
        lambda p, d: p.op == "dense",
        lambda f, p, d: f"family '{f}' runs op 'dense', but got op '{p.op}'",
        False,
    ),
    (
        "layout",
        lambda p, d: p.layout == CUDA_LAYOUT,
        lambda f, p, d: (
            f"family '{f}' reads layout '{CUDA_LAYOUT}', but got '{p.layout}'; repack the layer"
        ),
        False,
    ),
    (
        "activations",
        lambda p, d: p.activation_dtype in ACTIVATIONS and p.output_dtype == p.activation_dtype,
        lambda f, p, d: (
            f"family '{f}' takes bf16 or fp16 activations and gives the same type, but got "
            f"{p.activation_dtype} and {p.output_dtype}; convert the model"
        ),
        False,
    ),
    (
        "bf16_device",
        lambda p, d: p.activation_dtype != "bf16" or capability(d) >= (8, 0),
        lambda f, p, d: (
            f"bf16 needs compute capability 8.0 or newer, but '{d.name}' has "
            f"{_dotted(capability(d))}; use fp16"
        ),
        True,
    ),
)
"""What follows the family's name, whether it holds, what is said (to a family), whether static."""


_NARROW: tuple[tuple[str, _Holds, _Says, bool], ...] = (
    (
        "format",
        lambda p, d: p.format in FORMATS,
        lambda f, p, d: (
            f"family '{f}' runs {', '.join(FORMATS)}, but got format '{p.format}'; "
            f"use --format {FORMATS[0]}"
        ),
        False,
    ),
    (
        "no_act_order",
        lambda p, d: not p.act_order,
        lambda f, p, d: f"family '{f}' has no act-order; quantize without it",
        False,
    ),
    (
        "k_multiple",
        lambda p, d: p.k % K_MULTIPLE == 0,
        lambda f, p, d: (
            f"`k % {K_MULTIPLE} == 0` must hold, but got k={p.k}; "
            f"pad k to {-(-p.k // K_MULTIPLE) * K_MULTIPLE}"
        ),
        False,
    ),
)
"""More of the same, for families that run a part of the formats and shapes."""

_WIDE: tuple[tuple[str, _Holds, _Says, bool], ...] = (
    (
        "format",
        lambda p, d: LAYOUTS[CUDA_LAYOUT].holds(p.format),
        lambda f, p, d: (
            f"family '{f}' runs {LAYOUTS[CUDA_LAYOUT].holds_what}, but got format '{p.format}'; "
            "use another group size"
        ),
        False,
    ),
    (
        "input",
        lambda p, d: p.op != "moe" or p.quant.activation is None or p.quant.activation.dynamic,
        lambda f, p, d: (
            f"family '{f}' quantizes activations of experts as they come, but got format "
            f"'{p.format}'; name the weight's part of it, without the activation's"
        ),
        False,
    ),
)
"""More of the same, for families that run every weight format that the layout holds."""


def problem_rules(
    family: str,
    every_format: bool = False,
    experts: bool = False,
    layouts: tuple[str, ...] = (CUDA_LAYOUT,),
) -> tuple[Rule, ...]:
    """The rules of scope "problem" that CUDA families share, under `family`'s name;
    `every_format`: it runs every weight format of the layout, any k, and act-order; `experts`: it
    runs mixtures of experts too; `layouts`: those that it reads."""

    def rule(name: str, holds: _Holds, says: _Says, static: bool) -> Rule:
        sentence = partial(says, family)
        return problem_rule(family, f"{family}_{name}", holds, sentence, static)

    def reads(problem: Problem, device: Device) -> bool:  # noqa: ARG001
        return problem.layout in layouts

    def says_layout(family: str, problem: Problem, device: Device) -> str:  # noqa: ARG001
        return (
            f"family '{family}' reads layout '{layouts[0]}', but got '{problem.layout}'; repack "
            "the layer"
        )

    layout = ("layout", reads, says_layout, False)
    shared = (
        layout if one[0] == "layout" else one for one in _SHARED if not (experts and one[0] == "op")
    )
    return tuple(rule(*one) for one in (*shared, *(_WIDE if every_format else _NARROW)))


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
