"""What members of a crew are told and what they answer: frozen dataclasses, pickled, without
behaviour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from humming.spec.device import Device
from humming.spec.identity import Identity
from tuner.planning.budget import Budget
from tuner.workload import Workload


@dataclass(frozen=True)
class Work:
    """What is to be settled, the same for every member; without a workload it is what serving
    processes missed. With `since` a problem that was settled before counts as open."""

    workload: Workload | None
    m_values: tuple[int, ...]
    since: datetime | None = None


@dataclass(frozen=True)
class Order:
    """`work` for one member: on `device`, until `until` by the database's clock, within `cpus`.

    `url` may hold a password, so it is never printed.
    """

    work: Work
    url: str = field(repr=False)
    device: Device
    until: datetime | None = None
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a member did: how many trials, and what the user should know."""

    device: str
    measured: int
    notes: tuple[str, ...] = ()


class Crew(Protocol):
    """Whoever settles problems on several devices."""

    @property
    def identity(self) -> Identity:
        """What the evidence of its first member is true of."""
        ...

    def run(
        self,
        work: Work,
        until: datetime | None,
        budget: Budget,
        note: Callable[[str], None],
        tick: Callable[[], None],
    ) -> list[Result]:
        """Settles `work` on all devices; calls `tick` about every second meanwhile."""
        ...
