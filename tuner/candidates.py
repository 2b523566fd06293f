"""Candidates: what a search space offers for a problem, less what the rules reject, counted by
rule. Orders nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from humming.dispatch.heuristics import heuristic
from humming.errors import LegalityError
from humming.spec.config import KernelConfig, config_from_dict, config_id
from humming.spec.device import Device
from humming.spec.legality import config_violations, problem_violations
from humming.spec.problem import Problem
from search_spaces.context import context_of
from search_spaces.model import SearchSpace
from search_spaces.select import select


@dataclass(frozen=True)
class Candidates:
    """The legal configs of one problem, by config id, with the heuristic's pick among them.

    `rejections` counts combinations of the space by the rule, or the space's own reason, that ended
    them.
    """

    space: SearchSpace
    configs: dict[str, KernelConfig]
    heuristic: KernelConfig
    rejections: dict[str, int] = field(default_factory=dict)


def legal_candidates(
    problem: Problem, device: Device, spaces: tuple[SearchSpace, ...]
) -> Candidates:
    """All legal candidates of the families that run `problem` on `device`.

    Raises LegalityError with the rule's sentence where no family can run it.
    """
    family = "cpu"
    blocked = problem_violations(family, problem, device)
    if blocked:
        raise LegalityError(blocked[0].reason)
    space = select(spaces, family, device, problem.format)
    first = heuristic(problem, device)
    configs: dict[str, KernelConfig] = {config_id(first): first}
    pruned = space.prune(context_of(problem, device))
    rejections = Counter(pruned.rejected)
    for values in pruned.configs:
        config = config_from_dict({"family": family, **values})
        broken = config_violations(config, problem, device)
        if broken:
            rejections[broken[0].rule] += 1
        else:
            configs[config_id(config)] = config
    return Candidates(space, configs, first, dict(rejections))
