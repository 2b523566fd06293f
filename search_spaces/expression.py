"""Expression: a parsed constraint and what it is worth. How text becomes one is grammar.py.

The tree is made of frozen dataclasses, so that a space can be compared and sent to another process.
Values are integers and strings; a comparison gives a Python bool, which counts as 0 or 1. Whatever
the tree, evaluation ends: there are no loops, no attributes and no calls but min, max and ceil_div,
and every integer is kept within 64 bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Union

from humming.errors import SpaceError

Value = Union[int, str]  # noqa: UP007  (evaluated at import, where mypy wants an alias)
Environment = Mapping[str, Value]

INT_MAX = 2**63 - 1
NUMBER, TEXT = "a number", "a text"


@dataclass(frozen=True)
class Literal:
    """An integer or a string as written."""

    value: Value

    @property
    def kind(self) -> str:
        return TEXT if isinstance(self.value, str) else NUMBER

    def evaluate(self, env: Environment) -> Value:
        del env
        return self.value


@dataclass(frozen=True)
class Name:
    """A parameter of the space, or a name of context.NAMES."""

    name: str
    kind: str

    def evaluate(self, env: Environment) -> Value:
        value = env.get(self.name)
        if value is None or isinstance(value, str) != (self.kind == TEXT):
            raise SpaceError(f"`{self.name}` must be {self.kind}, but got {value!r}")
        return value


@dataclass(frozen=True)
class Arithmetic:
    """left op right, and the functions of two numbers; `op` is a key of ARITHMETIC."""

    op: str
    left: Node
    right: Node
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        left, right = self.left.evaluate(env), self.right.evaluate(env)
        try:
            value = ARITHMETIC[self.op](left, right)
        except ZeroDivisionError:
            raise SpaceError(f"division by zero in `{left} {self.op} {right}`") from None
        if abs(value) > INT_MAX:
            raise SpaceError(f"`{left} {self.op} {right}` does not fit into 64 bits")
        return value


@dataclass(frozen=True)
class Extreme:
    """min or max of two or more numbers."""

    op: str
    items: tuple[Node, ...]
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        pick: Callable[..., Value] = min if self.op == "min" else max
        return pick(item.evaluate(env) for item in self.items)


@dataclass(frozen=True)
class Not:
    """not item."""

    item: Node
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        return not self.item.evaluate(env)


@dataclass(frozen=True)
class Logic:
    """Items joined by `and` or by `or`.

    Stops at the first that decides, and is worth that one, as in Python.
    """

    op: str
    items: tuple[Node, ...]
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        value: Value = 0
        for item in self.items:
            value = item.evaluate(env)
            if bool(value) == (self.op == "or"):
                break
        return value


@dataclass(frozen=True)
class Comparison:
    """A chain `first op second op third ...`.

    Each operand is evaluated once, and not past the first that fails.
    """

    first: Node
    rest: tuple[tuple[str, Node], ...]
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        left = self.first.evaluate(env)
        for op, node in self.rest:
            right = node.evaluate(env)
            if not COMPARISONS[op](left, right):
                return False
            left = right
        return True


@dataclass(frozen=True)
class Membership:
    """item in [choices], or not in."""

    item: Node
    choices: tuple[Node, ...]
    negated: bool
    kind: str = NUMBER

    def evaluate(self, env: Environment) -> Value:
        value = self.item.evaluate(env)
        return (value in [choice.evaluate(env) for choice in self.choices]) != self.negated


Node = Union[Literal, Name, Arithmetic, Extreme, Not, Logic, Comparison, Membership]  # noqa: UP007

ARITHMETIC: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "ceil_div": lambda left, right: -(-left // right),
}
COMPARISONS: dict[str, Callable[..., bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Expression:
    """A parsed expression.

    Its text, its tree, the names that it uses, and (name, text) for each name compared with a text.
    """

    text: str
    root: Node
    names: tuple[str, ...]
    compared: tuple[tuple[str, str], ...] = ()

    def evaluate(self, env: Environment) -> Value:
        """The value as Python's own `//`, `%`, chained comparisons, `and` and `or` define it.

        `env` gives every name's value. Raises SpaceError with the expression and the values that it
        met on division by zero, on an integer beyond 64 bits, and on a name without a value of its
        kind.
        """
        try:
            return self.root.evaluate(env)
        except SpaceError as error:
            met = ", ".join(f"{name}={env[name]}" for name in self.names if name in env)
            raise SpaceError(f"`{self.text}`: {error}" + (f" with {met}" if met else "")) from None
