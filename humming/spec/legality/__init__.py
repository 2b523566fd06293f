"""THE statement of what a family can run on a device: one named rule each, checked before anything
is compiled.

Rules with `static=True` stand as `static_assert`s of the same name in the kernel sources; a test
compares the two lists.
"""

from __future__ import annotations

from humming.errors import LegalityError
from humming.spec.config import FAMILIES, KernelConfig
from humming.spec.device import Device
from humming.spec.layouts import CPU_LAYOUT
from humming.spec.legality import (
    blas,
    cpu,
    dequantize,
    invariance,
    mma,
    scaled_mm,
    skinny,
    wgmma,
    wgmma8,
)
from humming.spec.legality.cpu import (
    CPU_ACTIVATIONS,
    CPU_MAX_ACCUMULATORS,
    takes,
)
from humming.spec.legality.mma import mma_smem_bytes
from humming.spec.legality.rule import Rule, Violation
from humming.spec.legality.skinny import skinny_block_rows, skinny_smem_bytes
from humming.spec.legality.warpgroups import (
    WgmmaDeal,
    wgmma_block_rows,
    wgmma_deal,
    wgmma_threads,
)
from humming.spec.legality.wgmma import wgmma_smem_bytes, wgmma_staged_rows
from humming.spec.legality.wgmma8 import wgmma8_smem_bytes
from humming.spec.problem import Problem

__all__ = [
    "CPU_ACTIVATIONS",
    "CPU_LAYOUT",
    "CPU_MAX_ACCUMULATORS",
    "RULES",
    "Rule",
    "Violation",
    "WgmmaDeal",
    "check_config",
    "config_violations",
    "families_for",
    "mma_smem_bytes",
    "problem_violations",
    "skinny_block_rows",
    "skinny_smem_bytes",
    "takes",
    "wgmma8_smem_bytes",
    "wgmma_block_rows",
    "wgmma_deal",
    "wgmma_smem_bytes",
    "wgmma_staged_rows",
    "wgmma_threads",
]

RULES: tuple[Rule, ...] = (
    *cpu.RULES,
    *blas.RULES,
    *skinny.RULES,
    *dequantize.RULES,
    *mma.RULES,
    *wgmma.RULES,
    *wgmma8.RULES,
    *scaled_mm.RULES,
    *invariance.RULES,
)

_RULES_OF = {
    (family, scope): tuple(r for r in RULES if (r.family, r.scope) == (family, scope))
    for family in FAMILIES
    for scope in ("problem", "config")
}


def problem_violations(family: str, problem: Problem, device: Device) -> list[Violation]:
    """The rules by which `family` cannot serve `problem` on `device` at all; empty where it can."""
    return [
        Violation(rule.name, rule.says(None, problem, device))
        for rule in _RULES_OF.get((family, "problem"), ())
        if not rule.holds(None, problem, device)
    ]


def config_violations(config: KernelConfig, problem: Problem, device: Device) -> list[Violation]:
    """The rules that `config` breaks for `problem` on `device`; empty where it is legal."""
    rules = _RULES_OF.get((config.family, "config"), ())
    found = (_violation(rule, config, problem, device) for rule in rules)
    broken = problem_violations(config.family, problem, device)
    return broken or [violation for violation in found if violation is not None]


def _violation(
    rule: Rule, config: KernelConfig, problem: Problem, device: Device
) -> Violation | None:
    try:
        if rule.holds(config, problem, device):
            return None
        return Violation(rule.name, rule.says(config, problem, device))
    except ZeroDivisionError:  # of a table that somebody else wrote
        return Violation(
            rule.name, f"no knob that others are divided by may be 0, but got {config}"
        )


def check_config(config: KernelConfig, problem: Problem, device: Device) -> None:
    """Raises LegalityError with the first broken rule's sentence."""
    broken = config_violations(config, problem, device)
    if broken:
        raise LegalityError(broken[0].reason)


def families_for(problem: Problem, device: Device) -> list[str]:
    """The families that can serve `problem` on `device`, in the order of FAMILIES."""
    return [family for family in FAMILIES if not problem_violations(family, problem, device)]
