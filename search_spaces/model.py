"""SearchSpace: the configs that a file offers, and which are worth trying. Reading is load.py.

A space is the product of its parameters' values; constraints prune it. Pruning says "not worth a
trial here", with a reason; what cannot run at all is said by humming.spec.legality, which the tuner
asks afterwards.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from humming.errors import SpaceError
from search_spaces.expression import Environment, Expression, Value


@dataclass(frozen=True)
class Constraint:
    """What a config must satisfy to be worth trying, and the reason given where it does not.

    `where` is "file:line" of the expression.
    """

    expr: Expression
    reason: str
    where: str = ""

    def holds(self, env: Environment) -> bool:
        """Whether it does. Raises SpaceError with file and line where it cannot be evaluated."""
        try:
            return bool(self.expr.evaluate(env))
        except SpaceError as error:
            raise SpaceError(f"{self.where}: {error}" if self.where else str(error)) from None


@dataclass(frozen=True)
class Pruned:
    """What is left of a space for one problem on one device.

    The configs, and how many were rejected for which reason.

    Each rejected config is counted once, so `len(configs) + sum(rejected.values())` is the space's
    size.
    """

    configs: tuple[dict[str, Value], ...]
    rejected: dict[str, int]


@dataclass(frozen=True)
class SearchSpace:
    """What the tuner may try for one family.

    `name` is the file's name; `arch`, `formats` and `ops` are the globs it
    applies to.
    """

    name: str
    family: str
    parameters: dict[str, tuple[Value, ...]]
    constraints: tuple[Constraint, ...] = ()
    path: str = ""
    arch: tuple[str, ...] = ("*",)
    formats: tuple[str, ...] = ("*",)
    ops: tuple[str, ...] = ("*",)

    def size(self) -> int:
        """How many configs there are before any is rejected."""
        return math.prod(len(values) for values in self.parameters.values())

    def configs(self) -> Iterator[dict[str, Value]]:
        """Every config as {knob: value}, without duplicates; the last parameter changes fastest."""
        for values in itertools.product(*self.parameters.values()):
            yield dict(zip(self.parameters, values))  # noqa: B905  (equal by construction; 3.10 is fine with either)

    def rejected_by(self, values: Mapping[str, Value], context: Mapping[str, int]) -> str | None:
        """The reason of the first constraint that `values` does not satisfy; None where all hold.

        `context` is context_of(problem, device). Raises SpaceError where a constraint divides by
        zero or overflows.
        """
        env = {**context, **values}
        return next((c.reason for c in self.constraints if not c.holds(env)), None)

    def prune(self, context: Mapping[str, int]) -> Pruned:
        """The configs for which `rejected_by` is None, in the order of `configs()`.

        A constraint is asked as soon as the parameters that it names are chosen, and what it
        refuses is not walked.
        """
        order = list(self.parameters)
        due: list[list[Constraint]] = [[] for _ in range(len(order) + 1)]
        for constraint in self.constraints:
            last = max(
                (order.index(name) + 1 for name in constraint.expr.names if name in order),
                default=0,
            )
            due[last].append(constraint)
        below = [1]
        for name in reversed(order):
            below.insert(0, below[0] * len(self.parameters[name]))
        kept: list[dict[str, Value]] = []
        rejected: dict[str, int] = {}
        env: dict[str, Value] = dict(context)

        def choose(level: int) -> None:
            for constraint in due[level]:
                if not constraint.holds(env):
                    rejected[constraint.reason] = rejected.get(constraint.reason, 0) + below[level]
                    return
            if level == len(order):
                kept.append({name: env[name] for name in order})
                return
            for value in self.parameters[order[level]]:
                env[order[level]] = value
                choose(level + 1)

        choose(0)
        return Pruned(tuple(kept), rejected)
