"""Candidates: what the search spaces offer for a problem, less what the rules reject, counted by
rule. Orders nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from humming.dispatch.heuristics import heuristic, runners_up
from humming.errors import LegalityError
from humming.spec.config import FAMILIES, KernelConfig, config_from_dict, config_id
from humming.spec.device import Device
from humming.spec.legality import config_violations, families_for, problem_violations
from humming.spec.problem import Problem
from search_spaces.context import context_of
from search_spaces.model import SearchSpace
from search_spaces.select import select


@dataclass(frozen=True)
class Candidates:
    """The legal configs of one problem, by family and config id, with the heuristic's pick among
    them, and its runners-up, which a search should try first.

    `rejections` counts combinations of the spaces by the rule, or the space's own reason, that
    ended them.
    """

    by_family: dict[str, dict[str, KernelConfig]]
    spaces: dict[str, SearchSpace]
    heuristic: KernelConfig
    promising: tuple[KernelConfig, ...] = ()
    rejections: dict[str, int] = field(default_factory=dict)

    @cached_property
    def configs(self) -> dict[str, KernelConfig]:
        """All legal configs by config id."""
        return {key: c for configs in self.by_family.values() for key, c in configs.items()}


def legal_candidates(
    problem: Problem, device: Device, spaces: tuple[SearchSpace, ...]
) -> Candidates:
    """All legal candidates of the families that run `problem` on `device`.

    Raises LegalityError with a rule's sentence where no family can run it.
    """
    families = families_for(problem, device)
    if not families:
        raise LegalityError(_nearest_reason(problem, device))
    first = heuristic(problem, device)
    by_family: dict[str, dict[str, KernelConfig]] = {}
    chosen: dict[str, SearchSpace] = {}
    rejections: Counter[str] = Counter()
    for family in families:
        if family != first.family and all(space.family != family for space in spaces):
            continue  # a family that no file offers anything of
        chosen[family] = select(spaces, family, device, problem.format, problem.op)
        by_family[family] = {config_id(first): first} if first.family == family else {}
        pruned = chosen[family].prune(context_of(problem, device))
        rejections.update(pruned.rejected)
        for values in pruned.configs:
            config = config_from_dict({"family": family, **values})
            broken = config_violations(config, problem, device)
            if broken:
                rejections[broken[0].rule] += 1
            else:
                by_family[family][config_id(config)] = config
    promising = tuple(c for c in runners_up(problem, device) if c.family in by_family)
    for config in promising:
        by_family[config.family][config_id(config)] = config
    return Candidates(by_family, chosen, first, promising, dict(rejections))


def _nearest_reason(problem: Problem, device: Device) -> str:
    """The sentence of the family that breaks the fewest rules."""
    broken = [problem_violations(family, problem, device) for family in FAMILIES]
    return min(broken, key=len)[0].reason
