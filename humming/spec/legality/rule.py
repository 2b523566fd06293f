"""What a rule is, and how one is written down. The rules themselves stand in a module a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming.spec.device import Device
from humming.spec.problem import Problem


@dataclass(frozen=True)
class Rule:
    """One rule. `holds` and `says` take (config, problem, device); config is None for rules of
    scope "problem"."""

    name: str
    family: str
    scope: str
    holds: Callable[..., bool]
    says: Callable[..., str]
    static: bool = False


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold, with the sentence for the user."""

    rule: str
    reason: str


def problem_rule(
    family: str,
    name: str,
    holds: Callable[[Problem, Device], bool],
    says: Callable[[Problem, Device], str],
    static: bool = False,
) -> Rule:
    """A rule by which a family cannot serve a problem at all, whatever the config; `static` where a
    `static_assert` of this name checks it."""
    return Rule(
        name, family, "problem", lambda _, p, d: holds(p, d), lambda _, p, d: says(p, d), static
    )


def config_rule(
    family: str,
    name: str,
    holds: Callable[..., bool],
    says: Callable[..., str],
    static: bool = False,
) -> Rule:
    """A rule that a config must keep; `static` where a `static_assert` of this name checks it."""
    return Rule(name, family, "config", holds, says, static)
