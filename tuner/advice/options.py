"""What is compared: the model's layers in each weight format, and what each costs in memory. No
times here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from humming.spec.config import FAMILIES
from humming.spec.device import Device
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat
from humming.spec.legality import families_for, problem_violations
from humming.spec.problem import Problem
from tuner.planning.tasks import problem_of
from tuner.workload import LayerGroup, Workload, read_workload

FORMATS = (
    "int8",
    "fp8e4m3",
    "int6g128",
    "int5g128",
    "uint4g128z",
    "int4g128",
    "nvfp4",
    "mxfp4",
    "int3g128",
    "int2g64",
)
"""What is compared where the user names nothing: about one format for each number of bits."""

STORED, PLAIN = "as stored", "16-bit"
"""Names of the checkpoint's own formats, and of no quantization at all."""


@dataclass(frozen=True)
class Option:
    """A model in one format: `problems` are its quantized layers, `plain` those kept in `dtype`.

    `format` is a format's name, STORED or PLAIN. `reasons` say why some layers do not run on the
    device, a sentence each; empty where all do.
    """

    format: str
    dtype: str
    problems: tuple[tuple[LayerGroup, Problem], ...]
    plain: tuple[LayerGroup, ...]
    reasons: tuple[str, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all linear weights of a rank, as the device keeps them, lm_head left out."""
        quantized = sum(
            group.count * (group.experts or 1) * problem.at(0).least_bytes
            for group, problem in self.problems
        )
        element = dtype(self.dtype).bits // 8
        return quantized + sum(
            group.count * (group.experts or 1) * group.n * group.k * element for group in self.plain
        )


def make_options(
    model: Path, tp: int, m: int, device: Device, formats: Sequence[str] = ()
) -> tuple[Workload, list[Option]]:
    """The model in each of `formats` (none: FORMATS), as it is stored, and in 16 bits.

    A layer that the checkpoint quantizes is taken to be quantized anew from its float weights.
    Raises ModelError for a config that cannot be planned, FormatError for an unknown format.
    """
    stored = read_workload(model, tp)
    names = [str(QuantFormat.parse(name)) for name in formats] or list(FORMATS)
    # Which layers are linear ones, and not routers, is what a planning with --format tells.
    linear = read_workload(model, tp, "int4g128")
    options = []
    if stored.problems:
        options.append(_option(STORED, stored, stored.problems, stored.unquantized, m, device))
    for name in dict.fromkeys(names):
        groups = tuple(replace(group, format=name, act_order=False) for group in linear.problems)
        options.append(_option(name, stored, groups, linear.unquantized, m, device))
    plain = (*linear.problems, *linear.unquantized)
    options.append(Option(PLAIN, stored.dtype, (), plain, ()))
    return stored, options


def _option(
    name: str,
    workload: Workload,
    groups: Sequence[LayerGroup],
    plain: tuple[LayerGroup, ...],
    m: int,
    device: Device,
) -> Option:
    problems, reasons = [], []
    for group in groups:
        problem = problem_of(group, workload, device, m)
        problems.append((group, problem))
        if not families_for(problem, device):
            reasons.append(f"{', '.join(group.layers)}: {_why_not(problem, device)}")
    return Option(name, workload.dtype, tuple(problems), plain, tuple(dict.fromkeys(reasons)))


def _why_not(problem: Problem, device: Device) -> str:
    """The sentence of a family of this device that breaks the fewest rules."""
    broken = [problem_violations(family, problem, device) for family in FAMILIES]
    return min(broken, key=lambda rules: ("device" in rules[0].rule, len(rules)))[0].reason
