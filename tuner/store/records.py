"""What the store's verbs take and give back: frozen dataclasses, ids included. No SQL and no rows
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from humming.spec.canonical import canonical_json
from humming.spec.config import KernelConfig, config_id
from humming.spec.identity import Identity
from humming.spec.problem import Problem

Outcome = Literal[
    "ok", "illegal", "compile_error", "launch_error", "wrong_result", "timeout", "crashed"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Kind = Literal["candidate", "heuristic", "torch"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Reason = Literal["rule", "budget", "exhausted"]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True)
class Ticket:
    """A launch that is about to happen, written down by `begin`. `id` becomes the measurement's id.

    `attempts` is 1, or 2 where an earlier launch of the same candidate never came back.
    """

    id: str
    identity_id: str
    problem_id: str
    config_id: str
    nonce: str
    attempts: int
    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class MeasurementDraft:
    """What one trial showed, before the store adds its id, host and times.

    `us` (microseconds) is the median of `samples`, the raw times in order; both only where
    `outcome` is "ok", as a wrong candidate never gets a time. `error` is the largest error relative
    to its bound; None, NaN and infinity are stored as None. `config` is None for kind "torch"
    alone. `conditions` is what stood beside the samples (clocks, temperature, throttle bits,
    foreign load) as plain JSON. Raises ValueError where these rules do not hold.
    """

    identity: Identity
    problem: Problem
    config: KernelConfig | None
    outcome: Outcome
    us: float | None = None
    samples: tuple[float, ...] = ()
    error: float | None = None
    detail: str = ""
    compile_s: float | None = None
    kind: Kind = "candidate"
    conditions: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome not in OUTCOMES or self.kind not in KINDS:
            raise ValueError(f"unknown outcome or kind: {self.outcome!r}, {self.kind!r}")
        if (self.config is None) != (self.kind == "torch"):
            raise ValueError(
                f"`config is None` must hold for kind 'torch' alone, got {self.kind!r}"
            )
        if (self.us is not None) != (self.outcome == "ok") or (self.samples and self.us is None):
            raise ValueError(f"a time goes with outcome 'ok' alone, but got {self.outcome!r}")
        for name, values in (("us", (self.us,)), ("samples", self.samples)):
            if not all(value is None or 0 < value < math.inf for value in values):
                raise ValueError(f"`0 < {name} < inf` must hold, but got {values}")

        canonical_json(self.conditions)

    @property
    def config_id(self) -> str | None:
        """Content hash of the config, None for torch."""
        return None if self.config is None else config_id(self.config)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One trial as it stands in the database, for good. Times are UTC by the database's clock."""

    id: str
    identity_id: str
    problem_id: str
    config_id: str | None
    nonce: str
    kind: Kind
    outcome: Outcome
    us: float | None
    samples: tuple[float, ...]
    error: float | None
    detail: str
    compile_s: float | None
    started_at: datetime
    finished_at: datetime
    host: str
    pid: int
    device_uuid: str | None
    conditions: Mapping[str, Any]
    problem: Problem
    config: KernelConfig | None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A problem that was stopped: by `rule`, by `budget`, or as the space is `exhausted`, after
    `measured` trials.
    """

    id: str
    identity_id: str
    problem_id: str
    reason: Reason
    measured: int
    settled_at: datetime


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A promotion: from `promoted_at` on, `config` serves `problem` on `identity`.

    `us` and its peers are medians in microseconds; `limit_us` is the memory-bandwidth limit.
    `ratio_low` and `ratio_high` bound the paired ratio config / incumbent. `evidence` says what
    proved it (measurement ids, rounds), as plain JSON.
    """

    id: str
    identity: Identity
    problem: Problem
    config: KernelConfig
    us: float
    heuristic_us: float
    torch_us: float | None
    limit_us: float | None
    ratio_low: float | None
    ratio_high: float | None
    evidence: Mapping[str, Any]
    promoted_at: datetime


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to tune one problem for one identity until `expires_at`; `holder` is unguessable
    and new for each lease.
    """

    id: str
    identity_id: str
    problem_id: str
    holder: str
    expires_at: datetime
