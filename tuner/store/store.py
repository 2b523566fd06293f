"""Store: the verbs by which the tuner remembers. Each is one transaction, and gives back records,
never rows.

How a verb is said in SQL is evidence.py and decisions.py; opening a database is open.py.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

from sqlalchemy import true

from humming.spec.canonical import canonical_json
from humming.spec.config import KernelConfig
from humming.spec.identity import Identity
from humming.spec.problem import Problem
from tuner.store import decisions, evidence, leases, rows
from tuner.store.connections import Connections, now
from tuner.store.generations import Generations
from tuner.store.records import (
    REASONS,
    Lease,
    Measurement,
    MeasurementDraft,
    Outcome,
    Reason,
    Settled,
    Ticket,
    Winner,
)


class Store:
    """One open tuning database, made by `open_store`; a context manager. Every verb may raise
    StoreError.

    What a verb has given back is in the database and survives the death of this process. Processes
    and hosts may use one database at the same time, threads one Store.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @property
    def shown(self) -> str:
        """The database's path, or its URL without secrets."""
        return self._connections.address.shown

    @property
    def connections(self) -> Connections:
        """What the verbs that are not here speak through: those of moving evidence."""
        return self._connections

    @property
    def generations(self) -> Generations:
        """The verbs of generations of tuned tables."""
        return Generations(self._connections.server)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives all connections back."""
        self._connections.close()

    def keep_at_hand(self, identity: Identity, problem: Problem) -> None:
        """Prepares for an outage of the database while `problem` is tuned; see failover.py."""
        self._connections.keep_at_hand(identity, problem)

    def begin(self, identity: Identity, problem: Problem, config: KernelConfig) -> Ticket:
        """Writes down that `config` is about to be launched; call it before the launch, `finish`
        after.
        """
        nonce = uuid.uuid4().hex
        return self._connections.write(
            lambda c: evidence.begin(c, identity, problem, config, nonce)
        )

    def finish(self, ticket: Ticket | None, draft: MeasurementDraft) -> Measurement:
        """Adds a trial to the evidence and takes its launch back, both or neither. `ticket` is None
        where nothing was launched.

        Raises ValueError where the draft is of another identity, problem or config than the ticket.
        """
        if ticket is not None:
            ours = (ticket.identity_id, ticket.problem_id, ticket.config_id)
            theirs = (draft.identity.id, draft.problem.id, draft.config_id)
            if ours != theirs:
                raise ValueError(f"the ticket is for {ours}, but the draft for {theirs}")
        nonce = ticket.nonce if ticket else uuid.uuid4().hex
        return self._connections.write(lambda c: evidence.finish(c, ticket, draft, nonce))

    def abandon(self, ticket: Ticket) -> None:
        """Takes a launch back without evidence: it did not happen, or was interrupted by
        the user.
        """
        self._connections.write(lambda c: evidence.abandon(c, ticket))

    def measurements(
        self,
        identity: Identity,
        problem: Problem | None = None,
        outcome: Outcome | None = None,
    ) -> list[Measurement]:
        """The evidence of this identity in order of time, also that of other kernel sources as far
        as a config's own are the same. Configs that this version cannot read are left out.
        """
        return self._connections.read(
            lambda c: evidence.read_measurements(c, identity, problem, outcome)
        )

    def find(self, prefix: str) -> list[tuple[Measurement | Winner, Identity]]:
        """Trials and promotions whose id begins with `prefix`, with what they are true of."""
        return self._connections.read(
            lambda c: [*evidence.find(c, prefix), *decisions.find(c, prefix)]
        )

    def suspects(self, identity: Identity) -> dict[tuple[str, str], int]:
        """(problem_id, config_id) -> attempts, of launches that never came back as their process is
        gone.
        """
        return self._connections.read(lambda c: evidence.suspects(c, identity))

    def quarantined(self, identity: Identity) -> set[tuple[str, str]]:
        """(problem_id, config_id) of what must not be launched again: it crashed, or never came
        back twice.

        Holds for every identity of the same device, driver, compiler and sources of that kernel,
        and so is lifted when one changes.
        """
        return self._connections.read(lambda c: evidence.quarantined(c, identity))

    def settle(
        self, identity: Identity, problem: Problem, reason: Reason, measured: int
    ) -> Settled:
        """Writes down that `problem` was stopped by `reason` after `measured` trials. Raises
        ValueError on another reason.
        """
        if reason not in REASONS:
            raise ValueError(f"reason must be one of {', '.join(REASONS)}, but got {reason!r}")
        return self._connections.write(
            lambda c: decisions.settled_of(decisions.settle(c, identity, problem, reason, measured))
        )

    def settled(self, identity: Identity, since: datetime | None = None) -> dict[str, Settled]:
        """problem_id -> how it was settled (later than `since`), for problems of this identity that
        are; with the same sources of all that can serve them.
        """
        return self._connections.read(lambda c: decisions.read_settled(c, identity, since))

    def unsettle(self, identity: Identity, problem: Problem) -> None:
        """Takes back that `problem` is settled."""
        self._connections.write(lambda c: decisions.reopen(c, identity, problem))

    def promote(
        self,
        identity: Identity,
        problem: Problem,
        config: KernelConfig,
        *,
        us: float,
        heuristic_us: float,
        torch_us: float | None = None,
        limit_us: float | None = None,
        ratio_low: float | None = None,
        ratio_high: float | None = None,
        evidence: Mapping[str, Any] | None = None,
    ) -> Winner:
        """Makes `config` the one that serves `problem` on `identity` from now on; figures as in
        Winner.

        Raises ValueError unless every figure given is finite and above zero, and `evidence` plain
        JSON.
        """
        figures: dict[str, Any] = {
            "us": us,
            "heuristic_us": heuristic_us,
            "torch_us": torch_us,
            "limit_us": limit_us,
            "ratio_low": ratio_low,
            "ratio_high": ratio_high,
        }
        for name, value in figures.items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"`0 < {name} < inf` must hold, but got {value}")
            figures[name] = None if value is None else float(value)
        figures["evidence"] = dict(evidence or {})
        canonical_json(figures["evidence"])
        return self._connections.write(
            lambda c: decisions.promote(c, identity, problem, config, figures)
        )

    def winners(
        self, identity: Identity | None = None, until: datetime | None = None
    ) -> list[Winner]:
        """The winner that serves each (identity, problem), or served at `until`: of one identity
        (with those of other kernel sources whose own kernel is unchanged), or of all.
        """
        return self._connections.read(lambda c: decisions.read_winners(c, identity, until))

    def identities(self) -> list[Identity]:
        """All that evidence is true of, without uuids, in order of their ids."""
        found = self._connections.read(lambda c: rows.identities_of(c, true()))
        return [found[id] for id in sorted(found)]

    def clock(self) -> datetime:
        """Now by the database's clock, UTC."""
        return self._connections.read(now)

    def lease(
        self,
        identity: Identity,
        problems: Sequence[Problem],
        seconds: float,
        since: datetime | None = None,
    ) -> Lease | None:
        """The sole right to tune, for `seconds`, the first of `problems` that is not settled and
        that no other live process has; None where there is none.

        With `since` only what was settled later than that counts as settled.
        """
        holder = uuid.uuid4().hex
        return self._connections.write(
            lambda c: leases.lease(c, identity, problems, seconds, holder, since)
        )

    def leased(self, identity: Identity) -> set[str]:
        """Ids of the problems that are being tuned at this moment, here or elsewhere."""
        return self._connections.read(lambda c: leases.live(c, identity))

    def renew(self, held: Lease, seconds: float) -> Lease | None:
        """The same right until `seconds` from now; None where it ran out and someone else
        has it.
        """
        return self._connections.write(lambda c: leases.renew(c, held, seconds))

    def release(self, held: Lease) -> None:
        """Gives the right back; does nothing where it has passed to someone else."""
        self._connections.write(lambda c: leases.release(c, held))
