"""Whether a row from elsewhere may be taken in: types, ranges, references, and its id, which names
its content. What is wrong with it is said in one sentence; nothing is written here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Table, Text

from humming.dispatch.intervals import check_entry
from humming.errors import HummingError, StoreError
from humming.spec.canonical import canonical_json, content_hash
from humming.spec.config import KernelConfig, config_id
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import decisions, evidence, rows
from tuner.store.entries import entries
from tuner.store.moving.plain import TABLES, from_plain, to_plain
from tuner.store.records import KINDS, OUTCOMES, REASONS
from tuner.store.schema import REOPENED, UtcDateTime, measurements

MOST_AHEAD = timedelta(days=1)
"""How far a row's time may lie beyond this machine's clock: a later one would outrank all that is
promoted until then."""
_LONGEST_TEXT = 100_000


@dataclass
class Checker:
    """Checks rows that come one by one, each after those that it refers to, and against each other:
    a trial's id names what was tried, not what came of it."""

    devices: dict[str, Device] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    problems: dict[str, Problem | None] = field(default_factory=dict)
    configs: dict[str, KernelConfig | None] = field(default_factory=dict)
    trials: dict[bytes, bytes] = field(default_factory=dict)

    def check(self, name: Any, plain: Any) -> tuple[Table, dict[str, Any]]:
        """The table and the values of a sound row. Raises StoreError on any other."""
        if type(name) is not str or name not in TABLES:
            raise StoreError(f"a row must be of {', '.join(TABLES)}, but got {_shown(name)}")
        table = TABLES[name]
        try:
            values = _typed(table, plain)
            rule: Callable[[dict[str, Any]], str] = getattr(self, f"_{name}")
            expected = rule(values)
        except StoreError:
            raise
        except (
            HummingError,
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            OverflowError,
        ) as error:
            said = " ".join(str(error).split())[:200]
            raise StoreError(f"a row of {name} is not sound ({said})") from None
        if values["id"] != expected:
            raise StoreError(
                f"a row of {name} must have the id of its content, but {_shown(values['id'])} has "
                "not"
            )
        if table is measurements:
            held = bytes.fromhex(content_hash(to_plain(values)))
            if self.trials.setdefault(bytes.fromhex(expected), held) != held:
                raise contradicting(expected)
        return table, values

    def _devices(self, values: dict[str, Any]) -> str:
        device = rows.device_of(values)
        self.devices[device.id] = device
        return device.id

    def _identities(self, values: dict[str, Any]) -> str:
        identity = rows.identity_of(values, self.devices[values["device_id"]])
        self.identities[identity.id] = identity
        return identity.id

    def _problems(self, values: dict[str, Any]) -> str:
        problem = rows.problem_of(values)
        fields = {n: v for n, v in values.items() if n not in ("id", "layer_id")}
        layer = content_hash({**fields, "m": 0}) if problem is None else problem.layer_id
        _require(values["layer_id"] == layer, "layer_id must name the problem without m")
        id = content_hash(fields) if problem is None else problem.id
        self.problems[id] = problem
        return id

    def _configs(self, values: dict[str, Any]) -> str:
        held = values["config"]
        _require(type(held) is dict and held.get("family") == values["family"], "one family")
        config = rows.config_of(values)
        id = content_hash(held) if config is None else config_id(config)
        self.configs[id] = config
        return id

    def _measurements(self, values: dict[str, Any]) -> str:
        self._referred(values)
        ok, samples = values["outcome"] == "ok", values["samples"]
        _require(values["kind"] in KINDS and values["outcome"] in OUTCOMES, "kind and outcome")
        _require(ok == (values["us"] is not None), "a time goes with outcome ok alone")
        _require((values["kind"] == "torch") == (values["config_id"] is None), "torch, no config")
        _require(type(samples) is list and all(map(_positive, samples)), "samples must be times")
        _require(values["us"] is None or _positive(values["us"]), "us must be a time")
        _require(type(values["conditions"]) is dict, "conditions must be an object")
        parts = (values[n] for n in ("identity_id", "problem_id", "config_id", "nonce"))
        return evidence.measurement_id(*parts)

    def _settled(self, values: dict[str, Any]) -> str:
        self._referred(values)
        _require(values["reason"] in (*REASONS, REOPENED), "reason")
        _require(values["measured"] >= 0, "`measured >= 0` must hold")
        return decisions.row_id(values)

    def _winners(self, values: dict[str, Any]) -> str:
        self._referred(values)
        for name in ("us", "heuristic_us", "torch_us", "limit_us", "ratio_low", "ratio_high"):
            _require(values[name] is None or _positive(values[name]), f"{name} must be positive")
        _require(type(values["evidence"]) is dict, "evidence must be an object")
        identity = self.identities[values["identity_id"]]
        problem = self.problems[values["problem_id"]]
        config = self.configs[values["config_id"]]
        if problem is not None and config is not None:
            winner = decisions.winner_of(values, identity, problem, config)
            for entry in entries([winner]):
                check_entry(entry)
        return decisions.row_id(values)

    def _referred(self, values: Mapping[str, Any]) -> None:
        known: dict[str, Mapping[str, Any]] = {
            "identity_id": self.identities,
            "problem_id": self.problems,
            "config_id": self.configs,
        }
        for name, there in known.items():
            id = values.get(name)
            _require(id is None or id in there, f"{name} must name a row that came before")


def contradicting(id: str) -> StoreError:
    """What to raise where two trials of the same id have other values."""
    return StoreError(
        f"two trials with the id {id} must be the same, but differ; one of both was changed, so "
        "nothing was taken in"
    )


def _typed(table: Table, plain: Any) -> dict[str, Any]:
    """The row's values, each of its column's type, none missing, none besides."""
    columns = _columns(table)
    if type(plain) is not dict or plain.keys() != columns.keys():
        raise ValueError(f"it needs {', '.join(sorted(columns))}")
    for name, column in columns.items():
        value = plain[name]
        if not (value is None and column.nullable) and not _fits(column, value):
            raise ValueError(f"{name} must be {column.type}")
    values = from_plain(table, {n: v for n, v in plain.items() if v is not None})
    latest = datetime.now(timezone.utc) + MOST_AHEAD
    for name, value in values.items():
        if isinstance(value, datetime) and value > latest:
            raise ValueError(f"{name} must be past")
        if isinstance(value, int) and isinstance(columns[name].type, Double):
            values[name] = float(value)
    return {**dict.fromkeys(columns), **values}


@cache
def _columns(table: Table) -> dict[str, Column[Any]]:
    return {column.name: column for column in table.columns}


def _fits(column: Column[Any], value: Any) -> bool:
    kind = column.type
    if isinstance(kind, UtcDateTime):
        return type(value) is str
    if isinstance(kind, Boolean):
        return type(value) is bool
    if isinstance(kind, BigInteger):
        return type(value) is int and abs(value) < 2**63
    if isinstance(kind, Double):
        return type(value) in (int, float) and abs(value) < 1e300
    if isinstance(kind, JSON):
        return _is_json(value)
    if isinstance(kind, Text) or kind.python_type is str:
        longest = getattr(kind, "length", None) or _LONGEST_TEXT
        return type(value) is str and len(value) <= longest and _storable(value)
    return False


def _is_json(value: Any) -> bool:
    try:
        canonical_json(value)
    except (ValueError, TypeError, RecursionError):
        return False
    return _storable(value)


def _storable(value: Any) -> bool:
    """Whether PostgreSQL can hold all texts of it: no NUL, no lone surrogate."""
    if isinstance(value, dict):
        return all(_storable(key) and _storable(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_storable, value))
    if not isinstance(value, str):
        return True
    return "\0" not in value and value.encode("utf-8", "replace").decode("utf-8") == value


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < 1e15 and math.isfinite(value)


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
