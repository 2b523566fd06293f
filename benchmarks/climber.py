"""Climber: proposes candidates that differ in one knob from the best known; now and then it draws.
What it draws may come from another searcher. replay.py compares it with what tunes."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Protocol

from humming.spec.config import KernelConfig, config_id, config_to_dict

CLOSE = 1.2
"""Candidates within CLOSE of the best have their neighbours tried, the best's first."""

DRAWN_EVERY = 10
"""One proposal in so many is drawn from all that is untried, whatever is known."""

STARTUP = 4
"""Results before which candidates are drawn."""


class Source(Protocol):
    """Where drawn proposals may come from."""

    def ask(self) -> KernelConfig | None: ...
    def take(self, config: KernelConfig) -> bool: ...
    def tell(self, config: KernelConfig, us: float | None) -> None: ...
    def know(self, config: KernelConfig, us: float | None) -> None: ...


class Climber:
    """Ask/tell over the legal configs of one problem, all families together. Nothing is proposed
    twice.

    `legal` maps config id -> config; `seeds` are proposed first, in order; one proposal in
    `drawn_every` is drawn: evenly, or by `source`.
    """

    def __init__(
        self,
        legal: dict[str, KernelConfig],
        seeds: Iterable[KernelConfig] = (),
        seed: int = 0,
        drawn_every: int = DRAWN_EVERY,
        source: Source | None = None,
    ) -> None:
        self._legal = legal
        self._knobs = {key: _knobs(config) for key, config in legal.items()}
        self._order = list(legal)
        random.Random(seed).shuffle(self._order)
        self._seeds = [config for config in seeds if config_id(config) in legal]
        self._tried: set[str] = set()
        self._times: dict[str, float] = {}
        self._asked, self._drawn_every, self._source = 0, drawn_every, source

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed or known."""
        return len(self._tried) >= len(self._legal)

    def know(self, config: KernelConfig, us: float | None) -> None:
        """Take evidence of an earlier run: a time, or None for a candidate that failed."""
        self._tried.add(config_id(config))
        self._learn(config, us)
        if self._source is not None:
            self._source.know(config, us)

    def ask(self) -> KernelConfig | None:
        """The next candidate, or None where all were proposed."""
        while self._seeds:
            config = self._seeds.pop(0)
            if config_id(config) not in self._tried:
                return self._propose(config)
        self._asked += 1
        near = None
        if len(self._times) >= STARTUP and self._asked % self._drawn_every:
            near = self._neighbour()
        found = near or self._drawn()
        return None if found is None else self._propose(found)

    def tell(self, config: KernelConfig, us: float | None) -> None:
        """The result of a proposed candidate; None where it failed."""
        self._learn(config, us)
        if self._source is not None:
            self._source.tell(config, us)

    def _learn(self, config: KernelConfig, us: float | None) -> None:
        if us is not None and config_id(config) in self._legal:
            self._times[config_id(config)] = us

    def _propose(self, config: KernelConfig) -> KernelConfig:
        self._tried.add(config_id(config))
        if self._source is not None:
            self._source.take(config)
        return config

    def _drawn(self) -> KernelConfig | None:
        if self._source is not None and len(self._times) >= STARTUP:
            return self._source.ask()
        return next((self._legal[key] for key in self._order if key not in self._tried), None)

    def _neighbour(self) -> KernelConfig | None:
        """An untried candidate that differs in one knob from one of the best."""
        bar = CLOSE * min(self._times.values())
        best = sorted((us, key) for key, us in self._times.items() if us <= bar)
        for _, key in best:
            mine = self._knobs[key]
            for other in self._order:
                if other not in self._tried and _distance(mine, self._knobs[other]) == 1:
                    return self._legal[other]
        return None


def _knobs(config: KernelConfig) -> tuple[Any, ...]:
    return tuple(config_to_dict(config).values())


def _distance(mine: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """Knobs that differ; configs of two families differ in all."""
    if mine[0] != other[0] or len(mine) != len(other):
        return max(len(mine), len(other))
    return sum(a != b for a, b in zip(mine, other, strict=True))
