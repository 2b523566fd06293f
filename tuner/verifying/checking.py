"""Served configs meet the heuristic in paired rounds. What is slower or wrong is demoted; what
holds on a machine that it was not tuned for is promoted for it. Which ones is choosing.py."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import TunedTable
from humming.errors import CompileError, UsageError
from humming.jit.cache import CompiledKernel
from humming.jit.identity import here
from humming.spec.device import Device
from humming.spec.identity import Identity, Tier
from humming.spec.legality import config_violations
from tuner.measuring.conditions import clean_rounds, foul
from tuner.planning.budget import Budget
from tuner.progress import Watch
from tuner.promoting.verdict import MIN_ROUNDS, Interval, paired_ratio, proven
from tuner.searching.compile_pool import compile_all
from tuner.searching.trials import GRACE_S
from tuner.store.records import Winner
from tuner.store.store import Store
from tuner.store.tables import publish
from tuner.verifying.choosing import served, stratified
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Open, Race, Raced, Trial, Trialled

ROUNDS = 48
TIMEOUT_S = 120.0

Outcome = Literal["faster", "tie", "slower", "wrong", "unsure"]
"""Of a served config against the heuristic's. "slower" by the rule by which a challenger wins, the
sides changed; "wrong" where its numbers are, or where it crashed; "unsure" where too few rounds ran
under good conditions."""


@dataclass(frozen=True)
class Checked:
    """One served config, measured anew: its time over the heuristic's, and both medians; None where
    it was not timed."""

    winner: Winner
    tier: Tier
    outcome: Outcome
    interval: Interval | None = None
    us: float | None = None
    heuristic_us: float | None = None
    detail: str = ""

    @property
    def demoted(self) -> bool:
        """Whether the heuristic's config serves from now on."""
        return self.outcome in ("slower", "wrong")


@dataclass(frozen=True)
class Verified:
    """Of `served` configs `tuned` are not the heuristic's own; those in `checked` were measured.
    `table` is the new generation; None where nothing changed."""

    identity: Identity
    served: int
    tuned: int
    checked: tuple[Checked, ...]
    table: TunedTable | None


def verify(
    device: Device, store: Store, tables: Path, budget: Budget, watch: Watch, sample: int
) -> Verified:
    """Re-times up to `sample` of what serves on `device`, spread over families, formats and m.

    Raises UsageError where nothing serves here.
    """
    identity = here(device)
    serving = served(store.winners(), identity)
    if not serving:
        raise UsageError(
            f"verify needs a table that serves {device.name}, but {store.shown} has none; run "
            "humming-tune --model config.json"
        )
    tuned = [item for item in serving if _differs(item[0], device)]
    checked: list[Checked] = []
    changed = False
    table: TunedTable | None = None
    try:
        with Worker(device) as worker:
            for winner, fit in stratified(tuned, sample):
                if budget.over:
                    break
                found = _check(winner, fit, identity, worker, budget)
                checked.append(found)
                changed |= _written(found, identity, store)
                watch.note(line_of(found))
    finally:  # after Ctrl-C too: what was demoted serves no longer
        table = publish(store, tables) if changed else None
    return Verified(identity, len(serving), len(tuned), tuple(checked), table)


def line_of(found: Checked) -> str:
    """One line for a person."""
    problem = found.winner.problem
    what = f"{problem.format} n={problem.n} k={problem.k} m={problem.m} {found.winner.config}"
    if found.interval is None:
        return f"{what}: {found.outcome} ({found.detail})"
    ratio, low, high = found.interval.ratio, found.interval.low, found.interval.high
    return f"{what}: {found.outcome}, {ratio:.3f} of the heuristic's time ({low:.3f} .. {high:.3f})"


def _differs(winner: Winner, device: Device) -> bool:
    """Whether a winner is another config than the heuristic's, and still legal."""
    legal = not config_violations(winner.config, winner.problem, device)
    return legal and winner.config != heuristic(winner.problem, device)


def _check(
    winner: Winner, fit: Tier, identity: Identity, worker: Worker, budget: Budget
) -> Checked:
    problem = winner.problem
    default = heuristic(problem, identity.device)
    pair = [default, winner.config]
    theirs, ours = compile_all(pair, problem, identity.device, _limit_s(budget))
    if isinstance(theirs, CompileError):
        return Checked(winner, fit, "unsure", detail=f"the heuristic's config: {theirs}")
    if isinstance(ours, CompileError):
        return Checked(winner, fit, "unsure" if budget.over else "wrong", detail=str(ours))
    try:
        low, high = _serves(winner)
        worker.open(Open(problem, low, high), _limit_s(budget))
    except WorkerLostError as lost:
        return Checked(winner, fit, "unsure", detail=_why(lost, budget))
    try:
        passed = worker.ask(Trial(ours, winner.config.block_m), _limit_s(budget))
    except WorkerLostError as lost:
        ended = lost.outcome == "timeout" and not lost.hung and budget.over
        outcome: Outcome = "unsure" if ended else "wrong"
        return Checked(winner, fit, outcome, detail=_why(lost, budget))
    assert isinstance(passed, Trialled)
    if passed.outcome != "ok":
        return Checked(winner, fit, "wrong", detail=passed.detail)
    return _raced(winner, fit, (theirs, ours), worker, budget)


def _raced(
    winner: Winner,
    fit: Tier,
    kernels: tuple[CompiledKernel, CompiledKernel],
    worker: Worker,
    budget: Budget,
) -> Checked:
    request = Race(kernels, ROUNDS, budget.left_s(), winner.problem.m, until_decided=True)
    try:
        raced = worker.ask(request, _limit_s(budget))
    except WorkerLostError as lost:
        return Checked(winner, fit, "unsure", detail=_why(lost, budget))
    assert isinstance(raced, Raced)
    theirs, ours = clean_rounds(raced.samples_us, raced.conditions)
    if len(ours) < MIN_ROUNDS:
        why = next(filter(None, map(foul, raced.conditions)), "the budget ended")
        return Checked(winner, fit, "unsure", detail=why)
    return Checked(
        winner,
        fit,
        outcome_of(ours, theirs),
        paired_ratio(ours, theirs),
        statistics.median(ours),
        statistics.median(theirs),
    )


def _limit_s(budget: Budget) -> float:
    """Seconds that a request may take: what the command has left, and a grace."""
    return min(TIMEOUT_S, budget.left_with_s(GRACE_S))


def _why(lost: WorkerLostError, budget: Budget) -> str:
    ended = lost.outcome == "timeout" and not lost.hung and budget.over
    return "the budget ended" if ended else str(lost)


def outcome_of(ours: list[float], theirs: list[float]) -> Outcome:
    """What paired rounds say of a served config and the heuristic's."""
    if proven(ours, theirs):
        return "faster"
    return "slower" if proven(theirs, ours) else "tie"


def _written(found: Checked, identity: Identity, store: Store) -> bool:
    """Promotes for this machine what should serve on it from now on; False where that is so
    already."""
    winner = found.winner
    if found.outcome == "unsure" or (found.tier == "exact" and not found.demoted):
        return False
    default = heuristic(winner.problem, identity.device)
    heuristic_us = found.heuristic_us or winner.heuristic_us
    store.promote(
        identity,
        winner.problem,
        default if found.demoted else winner.config,
        us=heuristic_us if found.demoted else found.us or winner.us,
        heuristic_us=heuristic_us,
        torch_us=winner.torch_us,
        limit_us=winner.limit_us,
        evidence={
            "verified": winner.id,
            "outcome": found.outcome,
            "detail": found.detail[:500],
            "serves": list(_serves(winner)),
        },
    )
    return True


def _serves(winner: Winner) -> tuple[int, int]:
    low, high = winner.evidence.get("serves", (winner.problem.m, winner.problem.m + 1))
    return int(low), int(high)
