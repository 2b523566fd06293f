"""The tables of the tuning database. Every key is a content hash, so that merging two databases is
set union.

How they came to be is alembic/versions; what goes in and out is rows.py; no queries here.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects.postgresql import JSONB

from tuner.store.records import KINDS, OUTCOMES, REASONS

REVISION = "0003"
"""The alembic revision that this module describes; a test holds it equal to the head of
alembic/versions.
"""


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC datetime on both databases; SQLite keeps it as sortable text without a zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is None:
            return None
        aware = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return aware.astimezone(timezone.utc)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _id() -> Column[str]:
    return Column("id", String(32), primary_key=True)


def _ref(table: str, *, nullable: bool = False) -> Column[str]:
    name = {"identities": "identity_id"}.get(table, f"{table[:-1]}_id")
    return Column(name, String(32), ForeignKey(f"{table}.id"), nullable=nullable)


def _one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(v) for v in values)})", name=column)


def _positive(*columns: str) -> list[CheckConstraint]:
    # Above 0 and below a bound: NaN and infinity fail this on PostgreSQL too, where NaN sorts above
    # all numbers.
    return [CheckConstraint(f"{c} > 0 AND {c} < 1e15", name=c) for c in columns]


def _column(name: str, kind: Any, *, nullable: bool = False) -> Column[Any]:
    return Column(name, kind, nullable=nullable)


devices = Table(
    "devices",
    metadata,
    _id(),
    _column("kind", Text),
    _column("name", Text),
    _column("arch", Text),
    _column("cache_bytes", BigInteger),
    _column("isa", Text),
    _column("threads", BigInteger, nullable=True),
    _column("l2_bytes_per_core", BigInteger, nullable=True),
    _column("compute_capability", Text, nullable=True),
    _column("sm_count", BigInteger, nullable=True),
    _column("smem_bytes_per_block", BigInteger, nullable=True),
    _column("smem_bytes_per_sm", BigInteger, nullable=True),
    _column("registers_per_sm", BigInteger, nullable=True),
    _column("memory_clock_khz", BigInteger, nullable=True),
    _column("power_limit_w", BigInteger, nullable=True),
)

identities = Table(
    "identities",
    metadata,
    _id(),
    _ref("devices"),
    _column("driver", Text),
    _column("compiler", Text),
    _column("compiler_version", Text),
    _column("source_hash", Text),
    _column("product_version", Text),
    _column("policy", Text),
)

problems = Table(
    "problems",
    metadata,
    _id(),
    _column("layer_id", String(32)),
    _column("op", Text),
    _column("format", Text),
    _column("n", BigInteger),
    _column("k", BigInteger),
    _column("m", BigInteger),
    _column("activation_dtype", Text),
    _column("output_dtype", Text),
    _column("layout", Text),
    _column("bias", Boolean),
    _column("batch_invariant", Boolean),
    _column("act_order", Boolean),
    _column("experts", BigInteger, nullable=True),
    _column("top_k", BigInteger, nullable=True),
    _column("routing", Text, nullable=True),
    Index(None, "layer_id"),
)

configs = Table(
    "configs",
    metadata,
    _id(),
    _column("family", Text),
    _column("config", JSON().with_variant(JSONB(), "postgresql")),
)

measurements = Table(
    "measurements",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _ref("configs", nullable=True),
    _column("nonce", String(32)),
    _column("kind", Text),
    _column("outcome", Text),
    _column("us", Double, nullable=True),
    _column("samples", JSON),
    _column("error", Double, nullable=True),
    _column("detail", Text),
    _column("compile_s", Double, nullable=True),
    _column("started_at", UtcDateTime),
    _column("finished_at", UtcDateTime),
    _column("host", Text),
    _column("pid", BigInteger),
    _column("device_uuid", Text, nullable=True),
    _column("conditions", JSON),
    _one_of("kind", KINDS),
    _one_of("outcome", OUTCOMES),
    *_positive("us"),
    CheckConstraint("(outcome = 'ok') = (us IS NOT NULL)", name="time_goes_with_ok"),
    CheckConstraint("(kind = 'torch') = (config_id IS NULL)", name="torch_has_no_config"),
    Index(None, "identity_id", "problem_id", "outcome"),
)

in_flight = Table(
    "in_flight",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _ref("configs"),
    _column("host", Text),
    _column("pid", BigInteger),
    _column("process_started", Text),
    _column("started_at", UtcDateTime),
    _column("attempts", BigInteger),
    Index(None, "identity_id", "problem_id"),
)

REOPENED = "reopened"
"""The reason of a row in `settled` that takes an earlier one back: rows are only ever added, the
latest one counts.
"""

settled = Table(
    "settled",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _column("reason", Text),
    _column("measured", BigInteger),
    _column("settled_at", UtcDateTime),
    _one_of("reason", (*REASONS, REOPENED)),
    Index(None, "identity_id", "problem_id", "settled_at"),
)

winners = Table(
    "winners",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _ref("configs"),
    _column("us", Double),
    _column("heuristic_us", Double),
    _column("torch_us", Double, nullable=True),
    _column("limit_us", Double, nullable=True),
    _column("ratio_low", Double, nullable=True),
    _column("ratio_high", Double, nullable=True),
    _column("evidence", JSON),
    _column("promoted_at", UtcDateTime),
    *_positive("us", "heuristic_us", "torch_us", "limit_us", "ratio_low", "ratio_high"),
    Index(None, "identity_id", "problem_id", "promoted_at"),
)

leases = Table(
    "leases",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _column("holder", String(32)),
    _column("host", Text),
    _column("pid", BigInteger),
    _column("process_started", Text),
    _column("expires_at", UtcDateTime),
)

generations = Table(
    "generations",
    metadata,
    _id(),
    _column("entries", BigInteger),
    _column("content", LargeBinary),
    _column("host", Text),
    _column("created_at", UtcDateTime),
)
"""Tuned tables as they were written: `id` is the table's, `content` its file, compressed."""

generation_names = Table(
    "generation_names",
    metadata,
    _id(),
    _column("name", Text),
    _ref("generations"),
    _column("host", Text),
    _column("named_at", UtcDateTime),
    Index(None, "name", "named_at"),
)
"""What a name named, from when on: rows are only ever added, the latest one of a name counts."""

ledger = Table(
    "ledger",
    metadata,
    _id(),
    _ref("identities"),
    _ref("problems"),
    _column("process", Text),
    _column("calls", BigInteger),
    _column("misses", BigInteger),
    _column("since", UtcDateTime),
    _column("until", UtcDateTime),
    Index(None, "until"),
)
"""What serving processes counted: a row for each process and problem. It is no evidence."""
