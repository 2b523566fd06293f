"""Winners of a layer's anchors are measured at the m between them, and each serves where it holds.
Which config that is, is decided in bridging.py; who wins at an anchor is finals.py."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

from humming.dispatch.heuristics import heuristic
from humming.jit.cache import CompiledKernel
from humming.spec.canonical import content_hash
from humming.spec.config import KernelConfig, config_id
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tuner.measuring.conditions import clean_rounds
from tuner.promoting.bridging import Segment, Times, bridge
from tuner.searching.compile_pool import compile_all
from tuner.searching.trials import Scope
from tuner.store.records import Winner
from tuner.worker.isolation import WorkerLostError
from tuner.worker.messages import Open, Race, Raced, Trial, Trialled

ROUNDS = 7
TIMEOUT_S = 120.0
MOST_RACERS = 6
"""Configs of one race, those of the nearest m first."""


def cross_measure(scope: Scope, layer: Problem) -> bool:
    """Measures the winners of `layer` between their anchors, and writes down what each serves now.
    False where there is nothing to do: a single anchor, or all was done for these winners."""
    winners = {
        winner.problem.m: winner
        for winner in scope.store.winners(scope.identity)
        if winner.problem.at(0) == layer
    }
    name = content_hash([[m, config_id(winners[m].config)] for m in sorted(winners)])
    done = all(winner.evidence.get("bridge") == name for winner in winners.values())
    if len(winners) < 2 or done or scope.deadline.over:
        return False
    oracle = _Device(scope, layer)
    try:
        segments = bridge({m: winner.config for m, winner in winners.items()}, oracle)
        served = {
            m: held
            for m, share in _served(segments, winners).items()
            if (held := _verified(scope, layer.at(m), share, winners.get(m))) is not None
        }
        name = content_hash([[m, config_id(served[m].config)] for m in sorted(served)])
        for m, share in served.items():
            _write(scope, oracle, layer.at(m), share, winners.get(m), name)
    except WorkerLostError as lost:
        scope.watch.note(f"n={layer.n} k={layer.k}: between anchors: {lost}")
        return False
    return True


@dataclass(frozen=True)
class Share:
    """`config` serves [low, high)."""

    config: KernelConfig
    low: int
    high: int


def _served(segments: Sequence[Segment], winners: dict[int, Winner]) -> dict[int, Share]:
    """m -> config and what it serves: a segment is divided between the anchors in it; one without
    an anchor gets one of its own. Beyond the outermost anchors all is as it was."""
    found: dict[int, Share] = {}
    for segment in segments:
        inside = [m for m in sorted(winners) if segment.low <= m < segment.high] or [segment.at]
        ends = [isqrt(a * b - 1) + 1 for a, b in itertools.pairwise(inside)]
        lows, highs = [segment.low, *ends], [*ends, segment.high]
        for m, low, high in zip(inside, lows, highs, strict=True):
            found[m] = Share(segment.config, low, high)
    first, last = min(winners), max(winners)
    low, high = _serves(winners[first])[0], _serves(winners[last])[1]
    found[first] = replace(found[first], low=min(found[first].low, low))
    found[last] = replace(found[last], high=max(found[last].high, high))
    return found


def _serves(winner: Winner) -> tuple[int, int]:
    low, high = winner.evidence.get("serves", (winner.problem.m, winner.problem.m + 1))
    return int(low), int(high)


def _verified(scope: Scope, problem: Problem, share: Share, before: Winner | None) -> Share | None:
    """`share` where its config is right over all of it, which is known of what was verified before;
    else the part of it that was, or None."""
    known = _serves(before) if before is not None else None
    if known is not None and known[0] <= share.low and share.high <= known[1]:
        return share
    if not scope.deadline.over and _right(scope, problem, share):
        return share
    if known is None:
        return None
    return Share(share.config, max(share.low, known[0]), min(share.high, known[1]))


def _right(scope: Scope, problem: Problem, share: Share) -> bool:
    """Whether the worker finds right numbers over the share; False where the budget ends."""
    config = share.config
    (kernel,) = compile_all([config], problem, scope.identity.device, scope.limit_s())
    if not isinstance(kernel, CompiledKernel):
        return False
    try:
        opened = Open(problem, max(share.low, 1), share.high)
        scope.worker.open(opened, scope.limit_s(TIMEOUT_S))
        request = Trial(kernel, config.block_m, best_us=1e-9)
        result = scope.worker.ask(request, scope.limit_s(TIMEOUT_S), scope.stall_s)
    except WorkerLostError:
        if scope.deadline.over:
            return False
        raise
    return isinstance(result, Trialled) and result.outcome == "ok"


def _write(
    scope: Scope,
    oracle: _Device,
    problem: Problem,
    share: Share,
    before: Winner | None,
    name: str,
) -> None:
    evidence: dict[str, Any] = {"serves": [share.low, share.high], "bridge": name}
    if before is not None:
        scope.store.promote(
            scope.identity,
            problem,
            share.config,
            us=before.us,
            heuristic_us=before.heuristic_us,
            torch_us=before.torch_us,
            limit_us=before.limit_us,
            ratio_low=before.ratio_low,
            ratio_high=before.ratio_high,
            evidence={**before.evidence, **evidence},
        )
        return
    times = oracle.seen.get(problem.m, {})
    us = times[share.config]
    scope.store.promote(
        scope.identity,
        problem,
        share.config,
        us=us,
        heuristic_us=times.get(heuristic(problem, scope.identity.device), us),
        limit_us=problem.least_bytes / scope.read_bytes_per_s * 1e6,
        evidence={**evidence, "measured_us": {config_id(c): t for c, t in times.items()}},
    )


class _Device:
    """Measures in the worker. A search between anchors knows their winners and the heuristic's
    config, no more: what a full search would find is for an anchor of its own, with --m."""

    def __init__(self, scope: Scope, layer: Problem) -> None:
        self._scope, self._layer = scope, layer
        self._open = False
        self.seen: dict[int, Times] = {}

    def tuned(self, m: int, known: Sequence[KernelConfig]) -> KernelConfig | None:  # noqa: ARG002
        """The heuristic's config at `m`."""
        if self._scope.deadline.over:
            return None
        return heuristic(self._layer.at(m), self._scope.identity.device)

    def times(self, m: int, configs: Sequence[KernelConfig]) -> Times | None:
        """Paired medians at `m`."""
        scope, problem = self._scope, self._layer.at(m)
        if scope.deadline.over:
            return None
        device = scope.identity.device
        fit = [c for c in configs if not config_violations(c, problem, device)]
        fit = fit[: MOST_RACERS - 1] + fit[MOST_RACERS - 1 :][-1:]  # the last is the heuristic's
        kernels = compile_all(fit, problem, device, scope.limit_s())
        line = [(c, k) for c, k in zip(fit, kernels, strict=True) if isinstance(k, CompiledKernel)]
        if not line:
            return {}
        try:
            self._ready()
            request = Race(tuple(k for _, k in line), ROUNDS, scope.deadline.left_s(), m)
            raced = scope.worker.ask(request, scope.limit_s(TIMEOUT_S), scope.stall_s)
        except WorkerLostError:
            if scope.deadline.over:
                return None
            raise
        assert isinstance(raced, Raced)
        clean = clean_rounds(raced.samples_us, raced.conditions)
        rounds = clean if len(clean[0]) >= 3 else [list(side) for side in raced.samples_us]
        found = {c: statistics.median(us) for (c, _), us in zip(line, rounds, strict=True)}
        self.seen[m] = {**self.seen.get(m, {}), **found}
        return found

    def _ready(self) -> None:
        """The layer's tensors in the worker, once; a race is at any m."""
        if not self._open:
            problem = replace(self._layer, m=1)
            self._scope.worker.open(Open(problem, 1, 2), self._scope.limit_s(TIMEOUT_S))
            self._open = True
