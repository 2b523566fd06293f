"""The ledger: how often serving processes called which problem, and how often a heuristic config
served it.

Frozen: later changes are later revisions.
"""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Makes the table, empty: serving processes fill it."""
    op.create_table(
        "ledger",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("identity_id", sa.String(32), nullable=False),
        sa.Column("problem_id", sa.String(32), nullable=False),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("misses", sa.BigInteger, nullable=False),
        sa.Column("since", TIME, nullable=False),
        sa.Column("until", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_ledger"),
        sa.ForeignKeyConstraint(["identity_id"], ["identities.id"], name="fk_ledger_identity_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name="fk_ledger_problem_id"),
    )
    op.create_index("ix_ledger_until", "ledger", ["until"])


def downgrade() -> None:
    """Drops it: what was counted is gone, and counting begins anew."""
    op.drop_table("ledger")
