"""The grammar of constraints: text -> Expression. What an expression is worth is expression.py.

    or_      = and_ {"or" and_}
    and_     = not_ {"and" not_}
    not_     = "not" not_ | compare
    compare  = sum {("==" | "!=" | "<" | "<=" | ">" | ">=") sum} | sum ["not"] "in" "[" listed "]"
    sum      = product {("+" | "-") product}
    product  = unary {("*" | "//" | "%") unary}
    unary    = "-" unary | atom
    atom     = INTEGER | TEXT | NAME | "(" or_ ")" | ("min" | "max" | "ceil_div") "(" listed ")"
    listed   = sum {"," sum}

Precedence and meaning are Python's. Our own parser by recursive descent and not Python's `ast`: it
refuses at once whatever the grammar lacks, it never warns, and its depth is counted here. Numbers
and texts are told apart while parsing, so evaluation meets no mixture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from humming.errors import SpaceError
from humming.spec.naming import did_you_mean
from search_spaces.expression import (
    COMPARISONS,
    INT_MAX,
    NUMBER,
    TEXT,
    Arithmetic,
    Comparison,
    Expression,
    Extreme,
    Literal,
    Logic,
    Membership,
    Name,
    Node,
    Not,
)

MAX_TEXT, MAX_DEPTH, MAX_TOKENS = 500, 20, 200
FUNCTIONS = ("min", "max", "ceil_div")
KEYWORDS = ("and", "or", "not", "in")

_TOKEN = re.compile(
    r"""\s*(?:(?P<int>[0-9]+)(?![\w.])|(?P<text>'[^'\\\n]*'|"[^"\\\n]*")|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"""
    r"""|(?P<op>//|\*\*|[=!<>]=|&&|\|\||[-+*%<>()\[\],])|(?P<other>[0-9][\w.]*|\S))"""
)
_INSTEAD = {
    "/": "write `//`, division that rounds down",
    "**": "powers are refused",
    "=": "write `==`",
    "!": "write `not`",
    "&": "write `and`",
    "&&": "write `and`",
    "|": "write `or`",
    "||": "write `or`",
}


def parse(text: str, kinds: Mapping[str, str]) -> Expression:
    """The expression that `text` writes. `kinds` gives each legal name its kind, NUMBER or TEXT.

    Raises SpaceError, without a place, on whatever is not in the grammar, on an unknown name (with
    the nearest legal one), on a mixture of numbers and texts, and on an expression that is too long
    or too deep.
    """
    if len(text) > MAX_TEXT:
        raise SpaceError(
            f"an expression has at most {MAX_TEXT} characters, but got {len(text)}; split it in two"
        )
    parser = _Parser(_tokens(text), kinds)
    try:
        root = parser.whole()
    except SpaceError as error:
        raise SpaceError(f"in `{text}`: {error}") from None
    return Expression(text, root, tuple(dict.fromkeys(parser.used)), tuple(parser.compared))


def _tokens(text: str) -> list[tuple[str, str]]:
    """(kind, text) of each token, then ("end", "")."""
    tokens = [
        (str(match.lastgroup), match[str(match.lastgroup)])
        for match in _TOKEN.finditer(text.rstrip())
    ]
    if len(tokens) > MAX_TOKENS:
        raise SpaceError(
            f"an expression has at most {MAX_TOKENS} words and signs, but got {len(tokens)}; "
            f"split it in two"
        )
    return [*tokens, ("end", "")]


class _Parser:
    """One pass over the tokens; each method parses the rule of its name and returns its node."""

    def __init__(self, tokens: list[tuple[str, str]], kinds: Mapping[str, str]) -> None:
        self.tokens, self.kinds = tokens, kinds
        self.at = self.depth = 0
        self.used: list[str] = []
        self.compared: list[tuple[str, str]] = []

    def whole(self) -> Node:
        node = _number(self.or_(), "the whole expression")
        if self.tokens[self.at][0] != "end":
            raise self.unexpected()
        return node

    def unexpected(self) -> SpaceError:
        kind, token = self.tokens[self.at]
        if kind == "end":
            return SpaceError("the expression ends too early")
        return SpaceError(
            f"unexpected {token!r}" + (f"; {_INSTEAD[token]}" if token in _INSTEAD else "")
        )

    def accept(self, *wanted: str) -> str | None:
        """The next token if it is one of these signs or keywords, and a step forward."""
        kind, token = self.tokens[self.at]
        if token in wanted and kind in ("op", "name"):
            self.at += 1
            return token
        return None

    def expect(self, wanted: str) -> None:
        if not self.accept(wanted):
            raise self.unexpected()

    def deeper(self, rule: Callable[[], Node]) -> Node:
        """What `rule` parses, one level down; every recursion of the grammar passes here."""
        if self.depth == MAX_DEPTH:
            raise SpaceError(f"an expression nests at most {MAX_DEPTH} deep; split it in two")
        self.depth += 1
        node = rule()
        self.depth -= 1
        return node

    def or_(self) -> Node:
        return self.joined("or", self.and_)

    def and_(self) -> Node:
        return self.joined("and", self.not_)

    def joined(self, word: str, rule: Callable[[], Node]) -> Node:
        items = [rule()]
        while self.accept(word):
            items.append(rule())
        if len(items) == 1:
            return items[0]
        return Logic(word, tuple(_number(item, f"each side of `{word}`") for item in items))

    def not_(self) -> Node:
        if self.accept("not"):
            return Not(_number(self.deeper(self.not_), "what follows `not`"))
        return self.compare()

    def compare(self) -> Node:
        first = self.sum()
        if self.accept("in"):
            return Membership(first, self.choices(first), negated=False)
        if self.accept("not"):
            self.expect("in")
            return Membership(first, self.choices(first), negated=True)
        rest: list[tuple[str, Node]] = []
        left = first
        while op := self.accept(*COMPARISONS):
            right = self.sum()
            self.alike(left, op, right)
            rest.append((op, right))
            left = right
        if rest and self.tokens[self.at][1] in ("in", "not"):
            raise SpaceError("`in` cannot stand in a chain of comparisons; join them by `and`")
        return Comparison(first, tuple(rest)) if rest else first

    def alike(self, left: Node, op: str, right: Node) -> None:
        """Checks that `op` may compare these two, and notes names that are compared with texts."""
        if left.kind != right.kind:
            raise SpaceError(
                f"`{op}` compares like with like, but got {left.kind} and {right.kind}"
            )
        if left.kind == TEXT and op not in ("==", "!=", "in"):
            raise SpaceError(f"texts are compared by ==, != and in, but got `{op}`")
        for name, other in ((left, right), (right, left)):
            if isinstance(name, Name) and isinstance(other, Literal):
                self.compared += [(name.name, other.value)] if isinstance(other.value, str) else []

    def choices(self, item: Node) -> tuple[Node, ...]:
        self.expect("[")
        nodes = self.listed("]")
        for node in nodes:
            self.alike(item, "in", node)
        return nodes

    def listed(self, end: str) -> tuple[Node, ...]:
        nodes = [self.deeper(self.sum)]
        while self.accept(","):
            nodes.append(self.deeper(self.sum))
        self.expect(end)
        return tuple(nodes)

    def sum(self) -> Node:
        return self.arithmetic(("+", "-"), self.product)

    def product(self) -> Node:
        return self.arithmetic(("*", "//", "%"), self.unary)

    def arithmetic(self, signs: tuple[str, ...], rule: Callable[[], Node]) -> Node:
        node = rule()
        while op := self.accept(*signs):
            side = f"each side of `{op}`"
            node = Arithmetic(op, _number(node, side), _number(rule(), side))
        return node

    def unary(self) -> Node:
        if self.accept("-"):
            return Arithmetic("-", Literal(0), _number(self.deeper(self.unary), "what follows `-`"))
        return self.atom()

    def atom(self) -> Node:
        kind, token = self.tokens[self.at]
        if self.accept("("):
            node = self.deeper(self.or_)
            self.expect(")")
            return node
        if kind not in ("int", "text", "name") or token in KEYWORDS:
            raise self.unexpected()
        self.at += 1
        if kind == "int":
            return _integer(token)
        if kind == "text":
            return Literal(token[1:-1])
        return self.call(token) if self.accept("(") else self.name(token)

    def call(self, function: str) -> Node:
        if function not in FUNCTIONS:
            raise SpaceError(f"unknown function {function!r}{did_you_mean(function, FUNCTIONS)}")
        items = tuple(_number(item, f"each argument of {function}") for item in self.listed(")"))
        if len(items) < 2 or (function == "ceil_div" and len(items) > 2):
            takes = "two numbers" if function == "ceil_div" else "two numbers or more"
            raise SpaceError(f"{function} takes {takes}, but got {len(items)}")
        if function == "ceil_div":
            return Arithmetic(function, items[0], items[1])
        return Extreme(function, items)

    def name(self, name: str) -> Node:
        if name not in self.kinds:
            raise SpaceError(f"unknown name {name!r}{did_you_mean(name, self.kinds)}")
        self.used.append(name)
        return Name(name, self.kinds[name])


def _integer(digits: str) -> Literal:
    if len(digits) > len(str(INT_MAX)) or int(digits) > INT_MAX:
        raise SpaceError(f"an integer is at most 2**63 - 1, but got {digits[:30]}")
    if len(digits) > 1 and digits[0] == "0":
        raise SpaceError(f"an integer has no leading zero, but got {digits}")
    return Literal(int(digits))


def _number(node: Node, place: str) -> Node:
    if node.kind != NUMBER:
        raise SpaceError(f"{place} must be a number or a comparison, but got a text")
    return node
