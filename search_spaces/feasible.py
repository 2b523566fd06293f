"""Values that no rule of humming.spec.legality allows on any machine that a space is for. Words and
types are check.py's; what is worth a trial is the space's own business."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from humming.spec.config import KernelConfig, config_from_dict
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.layouts import layout_for
from humming.spec.legality import Violation, config_violations, problem_violations
from humming.spec.problem import Problem
from search_spaces.document import Document
from search_spaces.document import Problem as Mistake
from search_spaces.expression import Value
from search_spaces.model import SearchSpace

FORMATS = (
    *("int4g128", "int8", "uint4g128z", "fp8e4m3", "mxfp4", "nvfp4"),
    *("int4-int8", "int8-int8", "int4-int4", "fp8e4m3-fp8e4m3"),
)
"""Formats that stand for all others where a space names them by a pattern."""

_DTYPES = ("bf16", "fp16", "fp32")
_SIZE = 8192
_OPS = ("dense", "moe")
_EXPERTS: dict[str, Any] = {"experts": 128, "top_k": 8, "routing": "uniform"}
_STARTS, _STEPS = 6, 40

_GPUS = {
    (9, 0): (227 << 10, 228 << 10),  # first, as it can do the most
    (8, 0): (163 << 10, 164 << 10),
    (7, 5): (64 << 10, 64 << 10),
    (8, 9): (99 << 10, 100 << 10),
    (10, 0): (227 << 10, 228 << 10),
    (12, 0): (99 << 10, 100 << 10),
}
"""Compute capability -> bytes of shared memory of a block and of a multiprocessor. Source: NVIDIA,
CUDA C++ Programming Guide, table of technical specifications."""

Place = tuple[Problem, Device]


def infeasible(document: Document, space: SearchSpace) -> list[Mistake]:
    """What of `space`, read from `document`, can be legal nowhere: all of it, or single values."""
    places, reason = _places(space)
    if not places:
        text = f"family '{space.family}' runs nothing that this space is for: {reason}"
        return [document.problem(("applies_to",), text, at_key=True)]
    found = []
    for name, values in space.parameters.items():
        for index, value in enumerate(values):
            broken = _never_legal(space, name, value, places)
            if broken is not None:
                text = f"value {value!r} of '{name}' is legal nowhere: {broken.reason}"
                mistake = document.problem(("parameters", name, index), text)
                found.append((name in broken.reason, mistake))
    # Where no value of a knob is legal, no value of any other is: the knob's own say why.
    own = [mistake for its_own, mistake in found if its_own]
    return own or [mistake for _, mistake in found]


def _places(space: SearchSpace) -> tuple[list[Place], str]:
    """Problems on devices that the space is for and its family runs, or why there is none."""
    found: list[Place] = []
    reason = f"no device has arch {', '.join(space.arch)}"
    ops = [op for op in _OPS if any(fnmatchcase(op, pattern) for pattern in space.ops)]
    ways = product(_devices(space), _formats(space), _DTYPES, ops)
    for device, format, dtype, op in ways:
        layout, experts = layout_for(device, format), _EXPERTS if op == "moe" else {}
        problem = Problem(format, _SIZE, _SIZE, 16, dtype, dtype, layout=layout, op=op, **experts)
        broken = problem_violations(space.family, problem, device)
        if not broken:
            found.append((problem, device))
        elif len(broken) == 1 or "device" not in broken[0].rule:
            reason = broken[-1].reason
    return found, reason


def _devices(space: SearchSpace) -> Iterator[Device]:
    flags = tuple(sorted({flag for needed in CODE_PATH_FLAGS.values() for flag in needed}))
    cpus = [
        Device("cpu", "a CPU", arch, 32 << 20, isa=isa, threads=64, l2_bytes_per_core=1 << 20)
        for arch, isa in (("x86_64", flags), ("aarch64", ()))
    ]
    gpus = [
        Device(
            "cuda",
            f"a GPU of compute capability {major}.{minor}",
            f"sm{major}{minor}",
            50 << 20,
            compute_capability=(major, minor),
            sm_count=132,
            smem_bytes_per_block=block,
            smem_bytes_per_sm=sm,
            registers_per_sm=65536,
        )
        for (major, minor), (block, sm) in _GPUS.items()
    ]
    for device in (*cpus, *gpus):
        if any(fnmatchcase(device.arch, pattern) for pattern in space.arch):
            yield device


def _formats(space: SearchSpace) -> list[str]:
    exact = [name for name in space.formats if not set("*?") & set(name)]
    stand_in = [f for f in FORMATS if any(fnmatchcase(f, pattern) for pattern in space.formats)]
    return list(dict.fromkeys([*exact, *stand_in]))


def _never_legal(
    space: SearchSpace, name: str, value: Value, places: list[Place]
) -> Violation | None:
    """The rule that stands in the way of `value` wherever the other knobs go; None where none does.

    Descends from a few combinations, one knob at a time, to as few broken rules as can be had.
    """
    draw = random.Random(0)
    left: list[Violation] = []
    for _ in range(_STARTS):
        for problem, device in places:
            start = {knob: draw.choice(values) for knob, values in space.parameters.items()}
            found = _descend(space, {**start, name: value}, name, problem, device)
            if not found:
                return None
            left = found if not left or len(found) < len(left) else left
    return next((violation for violation in left if name in violation.reason), left[0])


def _descend(
    space: SearchSpace, values: dict[str, Value], fixed: str, problem: Problem, device: Device
) -> list[Violation]:
    broken = config_violations(_config(space, values), problem, device)
    for _ in range(_STEPS):
        if not broken:
            return []
        best = values
        for knob, choices in space.parameters.items():
            for choice in choices if knob != fixed else ():
                other = {**values, knob: choice}
                theirs = config_violations(_config(space, other), problem, device)
                if len(theirs) < len(broken):
                    broken, best = theirs, other
        if best is values:
            return broken
        values = best
    return broken


def _config(space: SearchSpace, values: dict[str, Value]) -> KernelConfig:
    return config_from_dict({"family": space.family, **values})
