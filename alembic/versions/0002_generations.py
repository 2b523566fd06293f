"""Generations of tuned tables, immutable, and the names by which hosts agree on one.

Frozen: later changes are later revisions.
"""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Makes both tables, empty: hosts write the next generation into them."""
    op.create_table(
        "generations",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("entries", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_generations"),
    )
    op.create_table(
        "generation_names",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("generation_id", sa.String(32), nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("named_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_generation_names"),
        sa.ForeignKeyConstraint(
            ["generation_id"], ["generations.id"], name="fk_generation_names_generation_id"
        ),
    )
    op.create_index("ix_generation_names_name_named_at", "generation_names", ["name", "named_at"])


def downgrade() -> None:
    """Drops both: what they hold can be written anew from the winners."""
    op.drop_table("generation_names")
    op.drop_table("generations")
