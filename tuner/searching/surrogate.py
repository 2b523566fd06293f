"""Proposes the next candidate by a model of times that learns as it goes: configs are alike as far
as they share knobs. It also says what more trials may gain; when to stop is stopping.py."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from humming.spec.config import KernelConfig, config_id, config_to_dict

SHARPNESS = 8
"""Likeness of two configs of a family is the share of their knobs that are equal, to this power."""

NOISE = 0.02
"""Variance of a time that no model explains, in parts of the variance of all times."""

STARTUP = 4
"""Results before which candidates are drawn evenly."""

SLOWEST = math.log(2.0)
"""Times beyond twice the best teach no more than that."""

LOOKAHEAD = 6
"""Trials whose expected gains are added up."""

Values = NDArray[np.float64]


class Surrogate:
    """Ask/tell over the legal configs of one problem, all families together. Nothing is proposed
    twice. `legal` maps config id -> config; `seeds` are proposed first, in order.

    The model is a Gaussian process over log times; the candidate with the least lower bound (mean
    less one deviation) is proposed. Source: Srinivas et al., Gaussian Process Optimization in the
    Bandit Setting, ICML 2010. It was chosen by replay: benchmarks/results/searchers.json.
    """

    def __init__(
        self, legal: dict[str, KernelConfig], seeds: Iterable[KernelConfig] = (), seed: int = 0
    ) -> None:
        self._legal = legal
        self._order = list(legal)
        random.Random(seed).shuffle(self._order)
        self._index = {key: index for index, key in enumerate(self._order)}
        self._alike = _alike([legal[key] for key in self._order])
        self._seeds = [config for config in seeds if config_id(config) in legal]
        self._tried: set[str] = set()
        self._times: dict[str, float] = {}

    @property
    def exhausted(self) -> bool:
        """Whether every legal candidate was proposed or known."""
        return len(self._tried) >= len(self._legal)

    def know(self, config: KernelConfig, us: float | None) -> None:
        """Take evidence of an earlier run: a time, or None for a candidate that failed."""
        self._tried.add(config_id(config))
        self.tell(config, us)

    def tell(self, config: KernelConfig, us: float | None) -> None:
        """The result of a proposed candidate; None where it failed."""
        if us is not None and config_id(config) in self._legal:
            self._times[config_id(config)] = us

    def ask(self) -> KernelConfig | None:
        """The next candidate, or None where all were proposed."""
        while self._seeds:
            config = self._seeds.pop(0)
            if config_id(config) not in self._tried:
                return self._propose(config)
        left = self._left()
        if not left:
            return None
        if len(self._times) < STARTUP:
            return self._propose(self._legal[left[0]])
        mean, deviation, _ = self._predicted(left)
        return self._propose(self._legal[left[int(np.argmin(mean - deviation))]])

    def expected_gain(self) -> float:
        """The part of the best time that the LOOKAHEAD most promising untried candidates may be
        expected to save, taken together: an upper bound, as alike ones gain alike.

        Source: Jones, Schonlau and Welch, Efficient Global Optimization, 1998 (expected
        improvement).
        """
        left = self._left()
        if not left:
            return 0.0
        if len(self._times) < STARTUP:
            return 1.0
        mean, deviation, best = self._predicted(left)
        z = (best - mean) / deviation
        below = np.array([0.5 * (1.0 + math.erf(value / math.sqrt(2.0))) for value in z])
        density = np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        gains = np.sort((best - mean) * below + deviation * density)[::-1]
        return float(min(1.0, gains[:LOOKAHEAD].sum()))

    def _propose(self, config: KernelConfig) -> KernelConfig:
        self._tried.add(config_id(config))
        return config

    def _left(self) -> list[str]:
        return [key for key in self._order if key not in self._tried]

    def _predicted(self, left: list[str]) -> tuple[Values, Values, float]:
        """Mean and deviation of the log times of `left`, and the least known log time."""
        known = [self._index[key] for key in self._times]
        logs = np.log(np.array(list(self._times.values())))
        logs = np.minimum(logs, logs.min() + SLOWEST)
        middle, spread = float(logs.mean()), max(float(logs.std()), 0.02)
        covariance = self._alike[np.ix_(known, known)] + NOISE * np.eye(len(known))
        to_left = self._alike[np.ix_([self._index[key] for key in left], known)]
        solved = np.linalg.solve(covariance, np.column_stack([(logs - middle) / spread, to_left.T]))
        mean = to_left @ solved[:, 0]
        variance = 1.0 - np.einsum("ij,ji->i", to_left, solved[:, 1:])
        deviation = np.sqrt(np.maximum(variance, 1e-9))
        return middle + spread * mean, spread * deviation, float(logs.min())


def _alike(configs: list[KernelConfig]) -> Values:
    """How alike configs are in pairs: 1 for the same, 0 across families."""
    rows = [list(config_to_dict(config).items()) for config in configs]
    width = max(len(row) for row in rows)
    codes: dict[Any, int] = {}
    table = np.full((len(rows), width), -1)
    for index, row in enumerate(rows):
        family = row[0][1]
        for place, (name, value) in enumerate(row):
            table[index, place] = codes.setdefault((family, name, value), len(codes))
    shared = np.zeros((len(rows), len(rows)))
    for place in range(width):
        column = table[:, place]
        shared += (column[:, None] == column[None, :]) & (column[:, None] >= 0)
    sizes = np.array([len(row) for row in rows])
    alike: Values = (shared / sizes[:, None]) ** SHARPNESS
    alike[table[:, :1] != table[:, :1].T] = 0.0
    return alike
