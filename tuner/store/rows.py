"""Dataclasses of the vocabulary to rows and back, each in one place. No queries here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Table, select
from sqlalchemy.dialects import postgresql, sqlite

from humming.errors import FormatError, LegalityError
from humming.spec.canonical import content_hash, plain
from humming.spec.config import KernelConfig, config_from_dict, config_id, config_to_dict
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import schema

T = TypeVar("T")

Values = dict[str, Any]


def add(connection: Connection, table: Table, values: Values) -> None:
    """Inserts a row unless one of that id stands there already: rows are content, so it would be
    the same.
    """
    dialect = {"postgresql": postgresql, "sqlite": sqlite}[connection.dialect.name]
    connection.execute(
        dialect.insert(table).values(values).on_conflict_do_nothing(index_elements=[table.c.id])
    )


def add_identity(connection: Connection, identity: Identity) -> None:
    """Writes `identity` and its device where they are new."""
    add(connection, schema.devices, device_values(identity.device))
    add(connection, schema.identities, identity_values(identity))


def device_values(device: Device) -> Values:
    """The row of a device; its uuid stays with measurements."""
    values: Values = plain(device)
    del values["uuid"]
    values["isa"] = " ".join(device.isa)
    if device.compute_capability is not None:
        values["compute_capability"] = ".".join(map(str, device.compute_capability))
    return {"id": device.id, **values}


def device_of(values: Mapping[str, Any]) -> Device:
    """The device of a row, without a uuid."""
    fields = {name: value for name, value in values.items() if name != "id"}
    fields["isa"] = tuple(fields["isa"].split())
    if fields["compute_capability"] is not None:
        major, minor = fields["compute_capability"].split(".")
        fields["compute_capability"] = (int(major), int(minor))
    return Device(**fields)


def identity_values(identity: Identity) -> Values:
    """The row of an identity, which names its device by id."""
    values: Values = plain(identity)
    del values["device"]
    return {"id": identity.id, "device_id": identity.device.id, **values}


def identity_of(values: Mapping[str, Any], device: Device) -> Identity:
    """The identity of a row and its device."""
    fields = {name: value for name, value in values.items() if name not in ("id", "device_id")}
    return Identity(device=device, **fields)


def problem_values(problem: Problem) -> Values:
    """The row of a problem."""
    return {"id": problem.id, "layer_id": problem.layer_id, **plain(problem)}


def problem_of(values: Mapping[str, Any]) -> Problem | None:
    """The problem of a row; None where this version cannot read it (another version's format)."""
    fields = {name: value for name, value in values.items() if name not in ("id", "layer_id")}
    try:
        return Problem(**fields)
    except (FormatError, LegalityError):
        return None


def config_values(config: KernelConfig) -> Values:
    """The row of a config."""
    values = config_to_dict(config)
    return {"id": config_id(config), "family": config.family, "config": values}


def config_of(values: Mapping[str, Any]) -> KernelConfig | None:
    """The config of a row; None where this version cannot read it (another version's family or
    knobs).
    """
    try:
        return config_from_dict(values["config"])
    except LegalityError:
        return None


def made(
    connection: Connection,
    table: Table,
    which: ColumnElement[bool],
    make: Callable[[Mapping[str, Any]], T],
) -> dict[str, T]:
    """id -> what `make` makes of each row of `table` that `which` selects."""
    found = connection.execute(select(table).where(which))
    return {row.id: make(row._asdict()) for row in found}


def identities_of(connection: Connection, which: ColumnElement[bool]) -> dict[str, Identity]:
    """id -> identity, for the rows of `identities` that `which` selects."""
    table = schema.identities
    used = schema.devices.c.id.in_(select(table.c.device_id).where(which))
    devices = made(connection, schema.devices, used, device_of)

    def make(values: Mapping[str, Any]) -> Identity:
        return identity_of(values, devices[values["device_id"]])

    return made(connection, table, which, make)


def lease_id(identity: Identity, problem: Problem) -> str:
    """One lease a problem and identity."""
    return content_hash([identity.id, problem.id])


def labelled(*tables: Table) -> list[ColumnElement[Any]]:
    """The columns of several tables for one SELECT, told apart by `<table>__<column>`."""
    return [c.label(f"{table.name}__{c.name}") for table in tables for c in table.columns]


def part(row: Row[Any], table: Table) -> Values:
    """`table`'s share of a row of `labelled` columns."""
    start = f"{table.name}__"
    return {
        name[len(start) :]: value for name, value in row._mapping.items() if name.startswith(start)
    }


def stored_text(text: str, limit: int = 8000) -> str:
    """The last `limit` characters of `text`, without what UTF-8 or PostgreSQL cannot hold (NUL,
    lone surrogates).
    """
    return text.replace("\0", "").encode("utf-8", "replace").decode("utf-8")[-limit:]
