"""Whose rows hold here besides those of this very identity: machines like this one whose kernels
had other sources, as far as a row's own kernel had the same. How sources compare is
humming/spec/sources.py.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select

from humming.spec.identity import Identity
from humming.spec.legality import families_for
from humming.spec.problem import Problem
from humming.spec.sources import count_same, same_sources, units_of
from tuner.store import rows
from tuner.store.schema import identities


class Alike:
    """The identities that differ from `identity` in kernel sources alone (and in the columns of
    `free`) and share some of them: `ids`, with the very same where the database knows it."""

    def __init__(self, connection: Connection, identity: Identity, free: Collection[str] = ()):
        values = rows.identity_values(identity)
        fixed = [name for name in values if name not in ("id", "source_hash", *free)]
        query = select(identities.c.id, identities.c.source_hash).where(
            *(identities.c[name] == values[name] for name in fixed)
        )
        self._identity = identity
        self._sources = {
            row.id: row.source_hash
            for row in connection.execute(query)
            if count_same(row.source_hash, identity.source_hash)
        }

    @property
    def ids(self) -> list[str]:
        return list(self._sources)

    @property
    def others(self) -> list[str]:
        """`ids` without the very same."""
        return [id for id in self._sources if id != self._identity.id]

    def hold(self, identity_id: str, problem: Problem, family: str | None) -> bool:
        """Whether a row about a kernel of `family` holds; one about torch (None) always does."""
        units = () if family is None else units_of(family, problem)
        return same_sources(self._sources[identity_id], self._identity.source_hash, units)

    def hold_for_all(self, identity_id: str, problem: Problem) -> bool:
        """Whether a row about all that can serve `problem` holds."""
        return all(
            self.hold(identity_id, problem, family)
            for family in families_for(problem, self._identity.device)
        )
