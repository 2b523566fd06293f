"""The shape of a space file, as pydantic models. What the words in it mean is check.py's.

family: cpu
applies_to: {arch: [...], formats: [...]}
parameters: {name: [values] | {range: [lo, hi, step]} | {powers_of_two: [lo, hi]}}
constraints: [{expr: ..., reason: ...}]
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr
from pydantic import ValidationError as ShapeError
from pydantic_core import ErrorDetails, PydanticCustomError

from humming.spec.naming import did_you_mean
from search_spaces.document import Document, Problem, Route
from search_spaces.expression import INT_MAX, Value

MAX_CHOICES, MAX_CONSTRAINTS, MAX_CHARACTERS = 64, 100, 500


def _wrong(text: str) -> PydanticCustomError:
    return PydanticCustomError("wrong", "{text}", {"text": text})


def _choices(value: Any) -> Any:
    """A list as it is; {range} and {powers_of_two} as the list that they stand for."""
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise _wrong("must be a list, or a mapping with range or powers_of_two alone")
    (form, bounds), *_ = value.items()
    if form not in _FORMS:
        raise _wrong(f"unknown form {form!r}{did_you_mean(form, _FORMS)}")
    names = _FORMS[form]
    if (
        not isinstance(bounds, list)
        or len(bounds) != len(names)
        or not all(type(item) is int and abs(item) <= INT_MAX for item in bounds)
    ):
        raise _wrong(f"{form} must be [{', '.join(names)}] in integers, but got {bounds!r:.60}")
    return _steps(*bounds) if form == "range" else _powers(*bounds)


_FORMS = {"range": ("lo", "hi", "step"), "powers_of_two": ("lo", "hi")}


def _steps(low: int, high: int, step: int) -> list[int]:
    if step < 1 or low > high:
        raise _wrong(
            f"`step >= 1` and `lo <= hi` must hold in a range, "
            f"but got lo={low}, hi={high}, step={step}"
        )
    if (high - low) // step >= MAX_CHOICES:
        raise _wrong(f"a parameter has at most {MAX_CHOICES} values; take a larger step")
    return list(range(low, high + 1, step))


def _powers(low: int, high: int) -> list[int]:
    powers = [1 << bit for bit in range(63) if low <= 1 << bit <= high]
    if low < 1 or not powers or powers[0] != low or powers[-1] != high:
        raise _wrong(
            f"lo and hi of powers_of_two must be powers of two with lo <= hi, "
            f"but got lo={low}, hi={high}"
        )
    return powers


def _value(value: Any) -> Value:
    if type(value) is int and abs(value) <= INT_MAX:
        return value
    if type(value) is str and 0 < len(value) <= MAX_CHARACTERS:
        return value
    raise _wrong(f"a value must be an integer or a text, but got {value!r:.60}")


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Text = Annotated[StrictStr, Field(min_length=1, max_length=MAX_CHARACTERS)]


class AppliesTo(_Shape):
    """Where a space is used: globs of Device.arch, of format names, and of ops."""

    arch: Annotated[list[_Text], Field(min_length=1, max_length=MAX_CHOICES)]
    formats: Annotated[list[_Text], Field(min_length=1, max_length=MAX_CHOICES)]
    ops: Annotated[list[_Text], Field(min_length=1, max_length=2)] = ["*"]


class ConstraintEntry(_Shape):
    """One constraint as written."""

    expr: _Text
    reason: _Text


_Choices = Annotated[
    list[Annotated[Any, AfterValidator(_value)]],
    Field(min_length=1, max_length=MAX_CHOICES),
    BeforeValidator(_choices),
]


class SpaceFile(_Shape):
    """A whole file."""

    family: _Text
    applies_to: AppliesTo
    parameters: Annotated[dict[str, _Choices], Field(min_length=1)]
    constraints: Annotated[list[ConstraintEntry], Field(max_length=MAX_CONSTRAINTS)] = []


_LEGAL_KEYS: dict[Route, tuple[str, ...]] = {
    (): tuple(SpaceFile.model_fields),
    ("applies_to",): tuple(AppliesTo.model_fields),
    ("constraints",): tuple(ConstraintEntry.model_fields),
}
_KINDS = {
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": "a text",
}


def parse_shape(document: Document) -> SpaceFile | list[Problem]:
    """The document as a SpaceFile, or what is wrong with its shape, in the order of lines."""
    try:
        return SpaceFile.model_validate(document.data)
    except ShapeError as error:
        errors = error.errors(include_url=False)
        misspelt = {
            details["loc"][:-1] for details in errors if details["type"] == "extra_forbidden"
        }
        found = [
            _problem(document, details)
            for details in errors
            # a misspelt key explains the missing one
            if details["type"] != "missing" or details["loc"][:-1] not in misspelt
        ]
        return sorted(found, key=lambda problem: problem.line)


def _problem(document: Document, details: ErrorDetails) -> Problem:
    route, kind = details["loc"], details["type"]
    name = ".".join(str(part) for part in route if isinstance(part, str)) or "the file"
    got = details["input"]
    if kind == "extra_forbidden":
        legal = _LEGAL_KEYS[tuple(part for part in route[:-1] if isinstance(part, str))]
        key = str(route[-1])
        return document.problem(
            route, f"unknown key {key!r}{did_you_mean(key, legal)}", at_key=True
        )
    if kind == "missing":
        return document.problem(route, f"{route[-1]!r} is missing; every {_owner(route)} has one")
    if kind == "wrong":
        return document.problem(route, f"{name}: {details['msg']}")
    if kind in _KINDS:
        return document.problem(route, f"{name} must be {_KINDS[kind]}, but got {got!r:.60}")
    if kind in ("too_short", "string_too_short"):
        return document.problem(route, f"{name} is empty; give it at least one value")
    if kind in ("too_long", "string_too_long"):
        limit = details["ctx"]["max_length"]
        return document.problem(route, f"{name} has more than {limit} values or characters")
    return document.problem(route, f"{name}: {details['msg']}")


def _owner(route: Route) -> str:
    if len(route) == 1:
        return "space file"
    return "constraint" if route[0] == "constraints" else str(route[0])
