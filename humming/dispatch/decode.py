"""Plain JSON values back into the vocabulary, every type checked.

Reading files and checksums are tables.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from humming.dispatch.intervals import Interval, TableEntry, Trials, check_entry
from humming.errors import TableError
from humming.spec.config import config_from_dict, config_to_dict
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.naming import did_you_mean
from humming.spec.problem import Problem

T = TypeVar("T")

MAX_US = 1e15
"""No kernel runs for thirty years; keeps infinities and integers that no float holds out."""

_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda v: type(v) is str,
    "int": lambda v: type(v) is int,
    "bool": lambda v: type(v) is bool,
    "float": lambda v: type(v) in (int, float) and 0 <= v < MAX_US,
    "tuple[str, ...]": lambda v: type(v) is list and all(type(item) is str for item in v),
    "tuple[int, int]": lambda v: (
        type(v) is list and len(v) == 2 and all(type(item) is int for item in v)
    ),
}
"""Annotation of a field, without ` | None` -> whether a JSON value fits it; floats are times."""


def entry_to_dict(entry: TableEntry) -> dict[str, Any]:
    """`entry` as the table file holds it: the problem without m, each config with its family, and
    its trials where there are any."""
    problem = dataclasses.asdict(entry.problem)
    del problem["m"]
    values: dict[str, Any] = {
        "identity": dataclasses.asdict(entry.identity),
        "problem": problem,
        "intervals": [
            {**vars(interval), "config": config_to_dict(interval.config)}
            for interval in entry.intervals
        ],
    }
    if entry.trials:
        values["trials"] = [
            {**vars(trials), "ratios": dict(trials.ratios)} for trials in entry.trials
        ]
    return values


def entry_from_dict(values: Any) -> TableEntry:
    """The entry that `entry_to_dict` wrote.

    Raises TableError, FormatError or LegalityError with a sentence.
    """
    keys = {"identity", "problem", "intervals"}
    if "trials" in _object(values, "an entry"):
        keys.add("trials")
    values = _object(values, "an entry", keys)
    identity = dict(_object(values["identity"], "identity"))
    device = decode(Device, identity.pop("device", None), "identity.device")
    for name in keys - {"identity", "problem"}:
        if type(values[name]) is not list:
            raise TableError(f"{name} must be a list, but got {_shown(values[name])}")
    entry = TableEntry(
        decode(Identity, identity, "identity", device=device),
        decode(Problem, values["problem"], "problem", m=0),
        tuple(_interval(item) for item in values["intervals"]),
        tuple(_trials(item) for item in values.get("trials", ())),
    )
    check_entry(entry)
    return entry


def _interval(values: Any) -> Interval:
    values = dict(_object(values, "an interval"))
    config = _object(values.pop("config", None), "config")
    if type(config.get("family")) is not str:
        raise TableError(f"config.family must be str, but got {_shown(config.get('family'))}")
    return decode(Interval, values, "interval", config=config_from_dict(config))


def _trials(values: Any) -> Trials:
    values = dict(_object(values, "trials"))
    ratios = _object(values.pop("ratios", None), "trials.ratios")
    for name, ratio in ratios.items():
        if ratio is not None and not (_CHECKS["float"](ratio) and ratio > 0):
            raise TableError(f"trials.ratios[{_shown(name)}] must be > 0, but got {_shown(ratio)}")
    pairs = ((id, None if ratio is None else float(ratio)) for id, ratio in ratios.items())
    return decode(Trials, values, "trials", ratios=tuple(sorted(pairs)))


def decode(cls: type[T], values: Any, where: str, **given: Any) -> T:
    """A dataclass `cls` from the object `values` and the fields `given`.

    Every field must be there, none besides, each of its annotated type. Raises TableError with
    a sentence that names `where`.
    """
    fields = {
        f.name: str(f.type)
        for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.name not in given
    }
    values = _object(values, where, set(fields))
    made: dict[str, Any] = {}
    for name, annotation in fields.items():
        value = values[name]
        bare = annotation.removesuffix(" | None")
        if not (value is None and bare != annotation) and not _CHECKS[bare](value):
            raise TableError(f"{where}.{name} must be {annotation}, but got {_shown(value)}")
        made[name] = tuple(value) if type(value) is list else value
        if bare == "float":
            made[name] = float(value)
    return cls(**made, **given)


def _object(values: Any, where: str, keys: set[str] | None = None) -> dict[str, Any]:
    if type(values) is not dict:
        raise TableError(f"{where} must be an object, but got {_shown(values)}")
    for name in sorted(values.keys() - keys) if keys is not None else ():
        raise TableError(f"{where} has no field {_shown(name)}{did_you_mean(name, keys or ())}")
    missing = sorted((keys or set()) - values.keys())
    if missing:
        raise TableError(f"{where} needs the fields {', '.join(missing)}")
    return values


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
