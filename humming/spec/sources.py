"""Which kernel sources a record was measured with: the text of `Identity.source_hash`, a hash for
each unit of sources, and the units that a kernel is made of. Reading files is jit/source_units.py.

    all:42fe57304a60 mma:0c11d9a2f3b4 mma_experts:5d3e... quantize_input:77b0... skinny:90aa...

A unit is what is edited and compiled together: a family's dense kernels, those for experts, what
quantizes x. A record holds as long as its kernel's own units do, whatever became of the others.
Older texts are one hash over all files of a device kind, which is what `all` still is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.problem import Problem

WHOLE = "all"
"""The hash over every file of a device kind: what older records call their sources."""
POOL, EXPERTS, INPUT = "pool", "experts", "quantize_input"
_CPU_FAMILIES = ("cpu", "blas")


def text_of(parts: Mapping[str, str]) -> str:
    """`parts` (unit -> hash) as one text, the same whatever their order."""
    return " ".join(f"{unit}:{parts[unit]}" for unit in sorted(parts))


@lru_cache(maxsize=256)
def parts_of(text: str) -> Mapping[str, str]:
    """Unit -> hash; of an older text only `all`."""
    if ":" not in text:
        return {WHOLE: text}
    return dict(part.split(":", 1) for part in text.split())


def units_of(family: str, problem: Problem) -> tuple[str, ...]:
    """The units that a call of `family` runs for `problem`."""
    experts = problem.op == "moe"
    unit = family
    if family == "mma" and problem.layout == CUDA_A8_LAYOUT:
        unit = "mma_bytes"
    units = [unit + "_experts" * experts]
    if family in _CPU_FAMILIES:
        return (*units, POOL)
    if experts:
        units.append(EXPERTS)
    if problem.quant.activation is not None:
        units.append(INPUT)
    return tuple(units)


def same_sources(theirs: str, ours: str, units: Iterable[str]) -> bool:
    """Whether `units` are of the same sources in both texts. Where one of them is an older text,
    all files must be."""
    if theirs == ours:
        return True
    one, other = parts_of(theirs), parts_of(ours)
    if len(one) == 1 or len(other) == 1:
        units = (WHOLE,)
    return all(unit in one and one[unit] == other.get(unit) for unit in units)


def count_same(theirs: str, ours: str) -> int:
    """How many units are of the same sources in both texts."""
    return len(parts_of(theirs).items() & parts_of(ours).items())


def differing(theirs: str, ours: str) -> tuple[str, str]:
    """Both texts, cut to the units that differ: those that both know, or else all there is."""
    one, other = parts_of(theirs), parts_of(ours)
    unlike = [unit for unit in one if unit in other and one[unit] != other[unit]]
    unlike = [unit for unit in unlike if unit != WHOLE] or unlike
    if not unlike:
        return theirs, ours
    cut = [text_of({unit: parts[unit] for unit in unlike}) for parts in (one, other)]
    return cut[0], cut[1]
