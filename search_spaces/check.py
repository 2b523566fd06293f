"""The words of a space file against the vocabulary: families, knobs, formats, names. No files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields

from humming.errors import FormatError, SpaceError
from humming.spec.config import FAMILIES
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.formats import QuantFormat
from humming.spec.naming import did_you_mean
from search_spaces import grammar
from search_spaces.context import NAMES
from search_spaces.document import Document, Problem, Route
from search_spaces.expression import NUMBER, TEXT, Value
from search_spaces.model import Constraint
from search_spaces.schema import SpaceFile

WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("cpu", "mainloop"): ("stream", "blocked"),
    ("cpu", "code_path"): tuple(CODE_PATH_FLAGS),
}
"""(family, knob) -> the texts that it knows.

So a misspelt value is found in its file, and not by a run in which legality rejects every config.
"""

_GLOB = re.compile(r"[A-Za-z0-9_.*?-]{1,64}\Z")


def check_family(document: Document, shape: SpaceFile) -> list[Problem]:
    """An unknown family."""
    if shape.family in FAMILIES:
        return []
    text = f"unknown family {shape.family!r}{did_you_mean(shape.family, FAMILIES)}"
    return [document.problem(("family",), text)]


def check_applies_to(document: Document, shape: SpaceFile) -> list[Problem]:
    """Patterns that are none, that stand twice, or that name a format which cannot be."""
    problems: list[Problem] = []
    for key in ("arch", "formats"):
        patterns: list[str] = getattr(shape.applies_to, key)
        problems += _duplicates(document, ("applies_to", key), patterns)
        for index, pattern in enumerate(patterns):
            text = _pattern_problem(key, pattern)
            if text:
                problems.append(document.problem(("applies_to", key, index), text))
    return problems


def _pattern_problem(key: str, pattern: str) -> str | None:
    if not _GLOB.match(pattern):
        return f"{key} takes names with the wildcards * and ?, but got {pattern!r:.70}"
    if key == "formats" and not set("*?") & set(pattern):
        try:
            QuantFormat.parse(pattern)
        except (FormatError, ValueError) as error:
            return str(error)
    return None


def check_parameters(document: Document, shape: SpaceFile) -> list[Problem]:
    """A knob that the family lacks, one that it needs, and values that a knob cannot have."""
    knobs = _knobs(shape.family)
    problems: list[Problem] = []
    for name, values in shape.parameters.items():
        route: Route = ("parameters", name)
        if name not in knobs:
            text = f"family '{shape.family}' has no parameter {name!r}{did_you_mean(name, knobs)}"
            problems.append(document.problem(route, text, at_key=True))
            continue
        problems += _duplicates(document, route, values)
        for index, value in enumerate(values):
            wrong = _value_problem(shape.family, name, value, knobs[name])
            if wrong:
                problems.append(document.problem((*route, index), wrong))
    missing = [name for name in knobs if name not in shape.parameters]
    if missing and set(shape.parameters) <= set(knobs):  # else a misspelt one explains the gap
        text = (
            f"family '{shape.family}' needs the parameters {', '.join(missing)} too; "
            f"give each its values"
        )
        problems.append(document.problem(("parameters",), text, at_key=True))
    return problems


def _knobs(family: str) -> dict[str, type[int] | type[str]]:
    kinds: dict[str, type[int] | type[str]] = {"int": int, "str": str}
    return {field.name: kinds[str(field.type)] for field in fields(FAMILIES[family])}


def _value_problem(family: str, name: str, value: Value, kind: type[int] | type[str]) -> str | None:
    if type(value) is not kind:
        wanted = "integers" if kind is int else "texts"
        return f"parameter '{name}' takes {wanted}, but got {value!r:.60}"
    words = WORDS.get((family, name))
    if words and value not in words:
        return f"parameter '{name}' has no value {value!r:.60}{did_you_mean(str(value), words)}"
    return None


def _duplicates(document: Document, route: Route, values: Sequence[Value]) -> list[Problem]:
    return [
        document.problem(
            (*route, index), f"duplicate value {value!r:.60} in {'.'.join(map(str, route))}"
        )
        for index, value in enumerate(values)
        if value in values[:index]
    ]


def read_constraints(
    document: Document, shape: SpaceFile
) -> tuple[tuple[Constraint, ...], list[Problem]]:
    """The constraints that parse, and what is wrong with the others."""
    knobs = _knobs(shape.family)
    kinds = dict.fromkeys(NAMES, NUMBER) | {
        name: TEXT if kind is str else NUMBER for name, kind in knobs.items()
    }
    made: list[Constraint] = []
    problems: list[Problem] = []
    for index, entry in enumerate(shape.constraints):
        place = document.problem(("constraints", index, "expr"), "")
        text = " ".join(entry.expr.split())  # it may be folded over several lines
        try:
            expression = grammar.parse(text, kinds)
        except SpaceError as error:
            problems.append(Problem(place.file, place.line, str(error)))
        else:
            made.append(Constraint(expression, entry.reason, f"{place.file}:{place.line}"))
            for name, word in expression.compared:
                wrong = _value_problem(shape.family, name, word, str)
                if wrong:
                    problems.append(Problem(place.file, place.line, f"in `{text}`: {wrong}"))
    return tuple(made), problems
