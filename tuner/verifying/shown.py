"""What was verified, as JSON and for a person. Decides nothing."""

from __future__ import annotations

import random
import statistics
from typing import Any

from rich.console import Console

from humming.spec.config import config_to_dict
from tuner.verifying.checking import Checked, Verified

_RESAMPLES = 1000


def to_json(verified: Verified) -> dict[str, Any]:
    """`verify --json`. `ratio` is the served config's time over the heuristic's; `regret` what it
    costs beyond the better of both."""
    interval = regret_interval(verified.checked)
    return {
        "device": verified.identity.device.name,
        "tuned": verified.tuned,
        "checked": len(verified.checked),
        "demoted": sum(found.demoted for found in verified.checked),
        "mean_regret": mean_regret(verified.checked),
        "mean_regret_low": None if interval is None else interval[0],
        "mean_regret_high": None if interval is None else interval[1],
        "records": [_row(found) for found in verified.checked],
        "table": None if verified.table is None else str(verified.table.path),
    }


def regret(found: Checked) -> float | None:
    """How much longer than the better of both a served config takes; None where nothing was
    timed."""
    return None if found.interval is None else max(0.0, found.interval.ratio - 1.0)


def mean_regret(checked: tuple[Checked, ...]) -> float | None:
    """The mean over what was timed."""
    known = [value for found in checked if (value := regret(found)) is not None]
    return sum(known) / len(known) if known else None


def regret_interval(checked: tuple[Checked, ...]) -> tuple[float, float] | None:
    """A 95 % interval of the mean, by bootstrap over what was timed and within each one's own
    interval; None where nothing was. The seed is fixed: the same samples give the same interval."""
    timed = [found.interval for found in checked if found.interval is not None]
    if not timed:
        return None
    draw = random.Random(0)

    def once() -> float:
        drawn = draw.choices(timed, k=len(timed))
        return statistics.mean(
            max(0.0, draw.triangular(of.low, of.high, of.ratio) - 1.0) for of in drawn
        )

    means = sorted(once() for _ in range(_RESAMPLES))
    cut = int(0.025 * _RESAMPLES)
    return means[cut], means[-1 - cut]


def print_verified(verified: Verified, console: Console) -> None:
    """The summary; each record's line was printed when it was measured."""
    if not verified.tuned:
        what = "1 record serves" if verified.served == 1 else f"{verified.served} records serve"
        console.print(f"{what} the heuristic's own config, so there is nothing to compare")
        return
    checked, tuned = len(verified.checked), verified.tuned
    counts = {
        outcome: sum(found.outcome == outcome for found in verified.checked)
        for outcome in ("faster", "tie", "slower", "wrong", "unsure")
    }
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    told = told or "the budget was over before"
    console.print(f"{checked} of {tuned} tuned configs checked: {told}")
    mean = mean_regret(verified.checked)
    interval = regret_interval(verified.checked)
    if mean is not None and interval is not None:
        low, high = interval
        console.print(f"mean regret against the heuristic: {mean:.1%} ({low:.1%} .. {high:.1%})")
    demoted = sum(found.demoted for found in verified.checked)
    if demoted:
        console.print(f"{demoted} demoted: the heuristic serves there; tune again with --continue")


def _row(found: Checked) -> dict[str, Any]:
    problem, interval = found.winner.problem, found.interval
    return {
        "record": found.winner.id,
        "tier": found.tier,
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "config": config_to_dict(found.winner.config),
        "outcome": found.outcome,
        "demoted": found.demoted,
        "ratio": None if interval is None else interval.ratio,
        "ratio_low": None if interval is None else interval.low,
        "ratio_high": None if interval is None else interval.high,
        "regret": regret(found),
        "detail": found.detail,
    }
