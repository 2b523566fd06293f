"""Runs revisions on the connection that tuner.store.migrate passes, or, for developers, on
HUMMING_DB. No schema here.
"""

from __future__ import annotations

from sqlalchemy import Connection

from alembic import context
from tuner.store.schema import metadata


def run(connection: Connection) -> None:
    """Runs the revisions in the transaction that `connection` is in."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transactional_ddl=True,
        render_as_batch=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_for_developer() -> None:
    """`alembic upgrade head` and its like from a shell, at the root of the source tree."""
    from humming.settings import database_url
    from tuner.store.address import parse
    from tuner.store.connections import Connections

    connections = Connections(
        parse(context.config.get_main_option("sqlalchemy.url") or database_url())
    )
    try:
        connections.migrate(run)
    finally:
        connections.close()


passed = context.config.attributes.get("connection")
if passed is not None:
    run(passed)
else:
    run_for_developer()
