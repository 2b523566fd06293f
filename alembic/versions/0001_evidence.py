"""The first schema: devices, identities, problems, configs, and the evidence, decisions and leases
that refer to them.

Every key is a content hash, so that merging two databases is set union. Frozen: later changes are
later revisions.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)
OUTCOMES = "'ok', 'illegal', 'compile_error', 'launch_error', 'wrong_result', 'timeout', 'crashed'"


def upgrade() -> None:
    """Makes all tables."""
    _vocabulary()
    _evidence()
    _decisions()


def downgrade() -> None:
    """Drops all tables, those that refer to others first."""
    for table in (
        "leases",
        "winners",
        "settled",
        "in_flight",
        "measurements",
        "configs",
        "problems",
        "identities",
        "devices",
    ):
        op.drop_table(table)


def _table(name: str, *items: sa.Column | sa.Constraint) -> None:
    op.create_table(
        name,
        sa.Column("id", sa.String(32), nullable=False),
        *items,
        sa.PrimaryKeyConstraint("id", name=f"pk_{name}"),
    )


def _some(kind: type | sa.types.TypeEngine, *names: str) -> list[sa.Column]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _maybe(kind: type | sa.types.TypeEngine, *names: str) -> list[sa.Column]:
    return [sa.Column(name, kind, nullable=True) for name in names]


def _ref(table: str, name: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([name], [f"{target}.id"], name=f"fk_{table}_{name}")


def _refs(table: str, *, config: bool = True) -> list[sa.ForeignKeyConstraint]:
    found = [
        _ref(table, "identity_id", "identities"),
        _ref(table, "problem_id", "problems"),
    ]
    return [*found, _ref(table, "config_id", "configs")] if config else found


def _check(table: str, name: str, rule: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{name}"))


def _positive(table: str, *columns: str) -> list[sa.CheckConstraint]:
    return [_check(table, c, f"{c} > 0 AND {c} < 1e15") for c in columns]


def _vocabulary() -> None:
    _table(
        "devices",
        *_some(sa.Text, "kind", "name", "arch"),
        *_some(sa.BigInteger, "cache_bytes"),
        *_some(sa.Text, "isa"),
        *_maybe(sa.BigInteger, "threads", "l2_bytes_per_core"),
        *_maybe(sa.Text, "compute_capability"),
        *_maybe(sa.BigInteger, "sm_count", "smem_bytes_per_block", "smem_bytes_per_sm"),
        *_maybe(sa.BigInteger, "registers_per_sm", "memory_clock_khz", "power_limit_w"),
    )
    _table(
        "identities",
        *_some(sa.String(32), "device_id"),
        *_some(sa.Text, "driver", "compiler", "compiler_version"),
        *_some(sa.Text, "source_hash", "product_version", "policy"),
        _ref("identities", "device_id", "devices"),
    )
    _table(
        "problems",
        *_some(sa.String(32), "layer_id"),
        *_some(sa.Text, "op", "format"),
        *_some(sa.BigInteger, "n", "k", "m"),
        *_some(sa.Text, "activation_dtype", "output_dtype", "layout"),
        *_some(sa.Boolean, "bias", "batch_invariant", "act_order"),
        *_maybe(sa.BigInteger, "experts", "top_k"),
        *_maybe(sa.Text, "routing"),
    )
    op.create_index("ix_problems_layer_id", "problems", ["layer_id"])
    _table(
        "configs",
        *_some(sa.Text, "family"),
        *_some(sa.JSON().with_variant(JSONB(), "postgresql"), "config"),
    )


def _evidence() -> None:
    _table(
        "measurements",
        *_some(sa.String(32), "identity_id", "problem_id"),
        *_maybe(sa.String(32), "config_id"),
        *_some(sa.String(32), "nonce"),
        *_some(sa.Text, "kind", "outcome"),
        *_maybe(sa.Double, "us"),
        *_some(sa.JSON, "samples"),
        *_maybe(sa.Double, "error"),
        *_some(sa.Text, "detail"),
        *_maybe(sa.Double, "compile_s"),
        *_some(TIME, "started_at", "finished_at"),
        *_some(sa.Text, "host"),
        *_some(sa.BigInteger, "pid"),
        *_maybe(sa.Text, "device_uuid"),
        *_some(sa.JSON, "conditions"),
        *_refs("measurements"),
        _check("measurements", "kind", "kind IN ('candidate', 'heuristic', 'torch')"),
        _check("measurements", "outcome", f"outcome IN ({OUTCOMES})"),
        *_positive("measurements", "us"),
        _check("measurements", "time_goes_with_ok", "(outcome = 'ok') = (us IS NOT NULL)"),
        _check("measurements", "torch_has_no_config", "(kind = 'torch') = (config_id IS NULL)"),
    )
    _index("measurements", "identity_id", "problem_id", "outcome")
    _table(
        "in_flight",
        *_some(sa.String(32), "identity_id", "problem_id", "config_id"),
        *_some(sa.Text, "host"),
        *_some(sa.BigInteger, "pid"),
        *_some(sa.Text, "process_started"),
        *_some(TIME, "started_at"),
        *_some(sa.BigInteger, "attempts"),
        *_refs("in_flight"),
    )
    _index("in_flight", "identity_id", "problem_id")


def _decisions() -> None:
    _table(
        "settled",
        *_some(sa.String(32), "identity_id", "problem_id"),
        *_some(sa.Text, "reason"),
        *_some(sa.BigInteger, "measured"),
        *_some(TIME, "settled_at"),
        *_refs("settled", config=False),
        _check("settled", "reason", "reason IN ('rule', 'budget', 'exhausted', 'reopened')"),
    )
    _index("settled", "identity_id", "problem_id", "settled_at")
    figures = ("us", "heuristic_us", "torch_us", "limit_us", "ratio_low", "ratio_high")
    _table(
        "winners",
        *_some(sa.String(32), "identity_id", "problem_id", "config_id"),
        *_some(sa.Double, *figures[:2]),
        *_maybe(sa.Double, *figures[2:]),
        *_some(sa.JSON, "evidence"),
        *_some(TIME, "promoted_at"),
        *_refs("winners"),
        *_positive("winners", *figures),
    )
    _index("winners", "identity_id", "problem_id", "promoted_at")
    _table(
        "leases",
        *_some(sa.String(32), "identity_id", "problem_id", "holder"),
        *_some(sa.Text, "host"),
        *_some(sa.BigInteger, "pid"),
        *_some(sa.Text, "process_started"),
        *_some(TIME, "expires_at"),
        *_refs("leases", config=False),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(f"ix_{table}_{'_'.join(columns)}", table, list(columns))
