"""The command diff: which configs serve in one of two states of evidence and not in the other, and
at what time. States are databases, drivers, or dates; nothing is measured here."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from humming.spec.config import config_to_dict
from tuner.store.records import Winner

Key: TypeAlias = tuple[str, str, str, int, int, int, str]
State = Literal["same", "changed", "only left", "only right"]


@dataclass(frozen=True)
class Difference:
    """What serves one problem on one model of device, on either side; None where nothing does."""

    left: Winner | None
    right: Winner | None

    @property
    def winner(self) -> Winner:
        """The side that is there, to name device and problem by."""
        found = self.left or self.right
        assert found is not None
        return found

    @property
    def state(self) -> State:
        """Whether both sides serve the same config."""
        if self.left is None or self.right is None:
            return "only right" if self.left is None else "only left"
        return "same" if self.left.config == self.right.config else "changed"

    @property
    def ratio(self) -> float | None:
        """The right side's time over the left's, each as it was measured at its own time."""
        return None if not (self.left and self.right) else self.right.us / self.left.us


def compare(left: Iterable[Winner], right: Iterable[Winner]) -> list[Difference]:
    """A row for each model of device and problem of either side. Of several identities of a side,
    such as two drivers, the one promoted last counts."""
    ours, theirs = _latest(left), _latest(right)
    return [
        Difference(ours.get(key), theirs.get(key)) for key in sorted(ours.keys() | theirs.keys())
    ]


def _latest(winners: Iterable[Winner]) -> dict[Key, Winner]:
    found: dict[Key, Winner] = {}
    for winner in sorted(winners, key=lambda winner: (winner.promoted_at, winner.id)):
        problem = winner.problem
        device = winner.identity.device
        key = (device.name, device.id, problem.format, problem.n, problem.k, problem.m, problem.id)
        found[key] = winner
    return found


def to_json(differences: list[Difference], left: str, right: str) -> dict[str, Any]:
    """`diff --json`. `ratio` is right over left; `median_ratio` over what both sides serve."""
    ratios = [row.ratio for row in differences if row.ratio is not None]
    states = [row.state for row in differences]
    return {
        "left": left,
        "right": right,
        "counts": {state: states.count(state) for state in sorted(set(states))},
        "median_ratio": statistics.median(ratios) if ratios else None,
        "problems": [_row(row) for row in differences],
    }


def _row(row: Difference) -> dict[str, Any]:
    problem = row.winner.problem
    return {
        "device": row.winner.identity.device.name,
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "state": row.state,
        "ratio": row.ratio,
        "left": _side(row.left),
        "right": _side(row.right),
    }


def _side(winner: Winner | None) -> dict[str, Any] | None:
    if winner is None:
        return None
    return {
        "record": winner.id,
        "config": config_to_dict(winner.config),
        "us": winner.us,
        "host": winner.evidence.get("host"),
        "driver": winner.identity.driver,
        "promoted_at": winner.promoted_at.isoformat(),
    }


def print_differences(report: dict[str, Any], differences: list[Difference], to: Console) -> None:
    """For a person: what is not the same, and how many are."""
    table = Table(
        title=f"{report['left']} -> {report['right']}", title_justify="left", box=SIMPLE_HEAD
    )
    for name in ("device", "format", "n", "k", "m", "left", "right", "right/left"):
        table.add_column(name)
    for row in differences:
        if row.state == "same":
            continue
        problem = row.winner.problem
        table.add_row(
            row.winner.identity.device.name,
            problem.format,
            *(str(size) for size in (problem.n, problem.k, problem.m)),
            *("-" if side is None else f"{side.config} {side.us:.1f} µs" for side in _sides(row)),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
        )
    if table.rows:
        to.print(table)
    counts = ", ".join(f"{count} {state}" for state, count in report["counts"].items())
    to.print(counts or "nothing serves on either side")


def _sides(row: Difference) -> tuple[Winner | None, Winner | None]:
    return row.left, row.right
