"""What the tuner and its worker process say to each other: frozen dataclasses, pickled over a pipe.
No behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from humming.jit.cache import CompiledKernel
from humming.spec.problem import Problem
from tuner.measuring.conditions import Conditions


@dataclass(frozen=True)
class Open:
    """Make the tensors of `problem`, to be served over m in [m_low, m_high). Answered by Done."""

    problem: Problem
    m_low: int
    m_high: int


@dataclass(frozen=True)
class Trial:
    """Verify, then time, one candidate on the open problem. Answered by Trialled.

    `best_us` is the best time known: a clear loser is timed less.
    """

    kernel: CompiledKernel
    block_m: int
    best_us: float | None = None


@dataclass(frozen=True)
class Baseline:
    """Time torch's own linear in the activation dtype on the open problem. Answered by Trialled."""


@dataclass(frozen=True)
class Race:
    """Time several kernels in paired rounds at `m` tokens, for at most `seconds`. Answered by
    Raced.

    With `until_decided` losers are dropped, and the race ends as soon as no further round could
    change the verdict.
    """

    kernels: tuple[CompiledKernel, ...]
    rounds: int
    seconds: float
    m: int
    until_decided: bool = False


@dataclass(frozen=True)
class ReadLimit:
    """Measure how fast the device reads memory. Answered by Rate."""


@dataclass(frozen=True)
class Done:
    """The request was carried out; `note` is what the user should know, or empty."""

    note: str = ""


@dataclass(frozen=True)
class Beat:
    """A sign of life while a request is answered: the worker is at `stage`, after `steps` steps."""

    stage: str
    steps: int


@dataclass(frozen=True)
class Trialled:
    """`outcome` is "ok", "wrong_result" or "launch_error"; `samples_us` is empty unless it is "ok".

    `error` is the largest |error| in units of the bound of humming.reference, `conditions` what
    stood beside the samples.
    """

    outcome: Literal["ok", "wrong_result", "launch_error"]
    samples_us: tuple[float, ...] = ()
    error: float | None = None
    detail: str = ""
    conditions: Conditions = field(default_factory=dict)


@dataclass(frozen=True)
class Raced:
    """`samples_us[i][r]`: time of kernel i in round r, of the first rounds alone where it was
    dropped; `conditions[r]` what stood beside the round; `policy` how all were taken."""

    samples_us: tuple[tuple[float, ...], ...]
    conditions: tuple[Conditions, ...] = ()
    policy: Conditions = field(default_factory=dict)


@dataclass(frozen=True)
class Rate:
    """Bytes per second."""

    bytes_per_s: float


Request = Open | Trial | Baseline | Race | ReadLimit
Answer = Done | Trialled | Raced | Rate
