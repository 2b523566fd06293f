"""Regular expressions from a config, matched in bounded time whatever they are. Which names they
are tried on is in names.py.

Simple expressions, nearly all that public configs hold, are handed to `re`: without nested or many
repetitions it cannot backtrack for long. Others are matched here by sets of positions, which takes
time in proportion to expression and text. Expressions that need more than that (references to
groups, looking behind) are refused.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

MAX_LENGTH = 1000
_NAME = r"[\w\-/:]|\\[.\-/]|\[[\w\-]+\]|\\d"
_SIMPLE = re.compile(rf"\^?(?:(?:{_NAME}|\.)[*+]?|\((?:\?:)?(?:{_NAME}|\.|\|)*\)|\|)*\$?")
_COUNT = re.compile(r"\{(\d{0,3})(,?)(\d{0,3})\}")
_ESCAPES = frozenset("dDwWsS")

Positions = frozenset[int]
MAX_DEPTH = 20
Node = Callable[[str, Positions], Positions]


@dataclass(frozen=True)
class Regex:
    """`match(text)` says whether the expression matches from the start; `cost` is roughly its
    time.
    """

    text: str
    match: Callable[[str], bool]
    cost: int


def compiled(text: str) -> Regex:
    """`text` ready to be matched. Raises ValueError, a reason: it is none, or could take for
    ever.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(text)
    except (re.error, OverflowError, RecursionError, ValueError):
        raise ValueError("is no regular expression") from None
    return _fast(text) or _bounded(text)


def _fast(text: str) -> Regex | None:
    if not _SIMPLE.fullmatch(text) or text.count("(") > 3:
        return None
    anywhere = text.startswith(".*") and "|" not in re.sub(r"\([^()]*\)", "", text)
    core = text.removeprefix(".*") if anywhere else text
    if core.endswith(".*") and not core.endswith("\\.*"):
        core = core[:-2]
    repeats = core.count("*") + core.count("+") + anywhere
    if repeats > 2:
        return None
    pattern = re.compile(core)
    found = pattern.search if anywhere else pattern.match
    return Regex(text, lambda name: found(name) is not None, 4 ** max(0, repeats - anywhere))


def _bounded(text: str) -> Regex:
    folded = text.startswith("(?i)")
    parser = _Parser(text[4:] if folded else text, re.IGNORECASE if folded else 0)
    node = parser.alternatives()
    if parser.at < len(parser.text):
        raise ValueError("is not closed")
    start = frozenset([0])
    return Regex(text, lambda name: bool(node(name, start)), 64)


class _Parser:
    """Recursive descent; each method returns a function from start positions to end positions."""

    def __init__(self, text: str, flags: int) -> None:
        self.text, self.flags, self.at, self.depth = text, flags, 0, 0

    def alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return lambda text, starts: frozenset().union(*(node(text, starts) for node in branches))

    def _sequence(self) -> Node:
        nodes: list[Node] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            nodes.append(self._repeated(self._atom()))

        def run(text: str, at: Positions) -> Positions:
            for node in nodes:
                if not at:
                    break
                at = node(text, at)
            return at

        return run

    def _repeated(self, node: Node) -> Node:
        while self.at < len(self.text):
            bounds = self._bounds()
            if bounds is None:
                break
            node = _repeat(node, *bounds)
            if self._take("+"):
                raise ValueError("repeats possessively")
            self._take("?")
        return node

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        count = _COUNT.match(self.text, self.at)
        if count is None or not (count[1] or count[3]):
            return None
        self.at = count.end()
        low = int(count[1] or 0)
        return low, (int(count[3]) if count[3] else None) if count[2] else low

    def _atom(self) -> Node:
        character = self.text[self.at]
        if character == "(":
            return self._group()
        if character == "[":
            return self._class()
        self.at += 1
        if character == "^":
            return lambda text, at: at & {0}
        if character == "$":
            return lambda text, at: at & {len(text)}
        if character == "\\":
            return self._escape()
        return self._single("." if character == "." else re.escape(character))

    def _escape(self) -> Node:
        character = self.text[self.at]
        self.at += 1
        if character == "A":
            return lambda text, at: at & {0}
        if character in "Zz":
            return lambda text, at: at & {len(text)}
        if character in "bB":
            edge = re.compile("\\" + character)
            return lambda text, at: frozenset(p for p in at if edge.match(text, p))
        if character.isalnum() and character not in _ESCAPES:
            raise ValueError("refers to a group or a character code")
        return self._single("\\" + character)

    def _class(self) -> Node:
        end = self.at + 1
        end += self.text.startswith("^", end)
        end += self.text.startswith("]", end)
        while self.text[end] != "]":
            end += 2 if self.text[end] == "\\" else 1
        source, self.at = self.text[self.at : end + 1], end + 1
        return self._single(source)

    def _single(self, source: str) -> Node:
        one = re.compile(source, self.flags)
        return lambda text, at: frozenset(p + 1 for p in at if p < len(text) and one.match(text, p))

    def _group(self) -> Node:
        self.at += 1
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ValueError("nests too deeply")
        looking = next((sign for sign in ("?=", "?!") if self.text.startswith(sign, self.at)), "")
        if looking or self.text.startswith("?:", self.at):
            self.at += 2
        elif self.text.startswith("?P<", self.at):
            self.at = self.text.index(">", self.at) + 1
        elif self.text.startswith("?", self.at):
            raise ValueError("looks behind, sets flags or refers to a group")
        inner = self.alternatives()
        self.depth -= 1
        if not self._take(")"):
            raise ValueError("is not closed")
        if not looking:
            return inner
        wanted = looking == "?="
        return lambda text, at: frozenset(
            p for p in at if bool(inner(text, frozenset([p]))) == wanted
        )

    def _take(self, sign: str) -> bool:
        taken = self.text.startswith(sign, self.at)
        self.at += len(sign) if taken else 0
        return taken


def _repeat(node: Node, low: int, high: int | None) -> Node:
    """`node` from `low` to `high` times. Positions only grow, so that both loops settle within as
    many steps as the text has characters.
    """

    def run(text: str, at: Positions) -> Positions:
        for _ in range(low):
            following = node(text, at)
            if following == at:
                break
            at = following
        reached, rounds = at, 0
        while at and (high is None or rounds < high - low):
            at = node(text, at) - reached
            reached, rounds = reached | at, rounds + 1
        return reached

    return run
