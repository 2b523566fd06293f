"""Reports: the result of a tuning as JSON by the contract, and as a table. Reads winners; decides
nothing."""

from __future__ import annotations

from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from humming.dispatch.dispatcher import Dispatch, lookup, resolve
from humming.spec.config import config_from_dict, config_to_dict
from humming.spec.naming import counted
from humming.spec.problem import Problem
from tuner.evidence.best import transfer_json
from tuner.pipeline import Tuned
from tuner.planning.tasks import Task
from tuner.store.records import Winner
from tuner.store.store import Store
from tuner.workload.layers import row


def to_json(tuned: Tuned, store: Store) -> dict[str, Any]:
    """The main job's `--json`. `ms_per_token` sums count x time over the layers at the smallest m,
    divided by that m; None where a problem has no time yet."""
    winners = {winner.problem.id: winner for winner in store.winners(tuned.identity)}
    settled = store.settled(tuned.identity)
    rows = [_problem_row(task, winners.get(task.problem.id), tuned, store) for task in tuned.tasks]
    return {
        "model": tuned.workload.model,
        "device": tuned.identity.device.name,
        "measured": tuned.measured,
        "settled": sum(task.problem.id in settled for task in tuned.tasks),
        "problems": rows,
        "skipped": [
            {
                "layers": list(skip.group.layers),
                "n": skip.group.n,
                "k": skip.group.k,
                "reason": skip.reason,
            }
            for skip in tuned.skipped
        ],
        "ms_per_token": ms_per_token(tuned.tasks if tuned.whole else [], winners),
        "table": None if tuned.table is None or tuned.table.path is None else str(tuned.table.path),
        "warnings": list(tuned.workload.warnings),
    }


def _problem_row(task: Task, winner: Winner | None, tuned: Tuned, store: Store) -> dict[str, Any]:
    taken = None if winner else _taken(task.problem, tuned)
    served = winner or taken
    config = served.config if served else task.candidates.heuristic
    return {
        **row(task.group),
        "m": task.problem.m,
        "config": config_to_dict(config),
        "family": config.family,
        "us": winner.us if winner else None,
        "heuristic_us": winner.heuristic_us if winner else None,
        "torch_us": winner.torch_us if winner else None,
        "torch_foul": _torch_foul(winner, tuned, store) if winner else None,
        "limit_us": winner.limit_us if winner else None,
        "source": "transfer" if taken else source(task, winner),
        "transfer": transfer_json(taken.transfer) if taken else None,
    }


def _torch_foul(winner: Winner, tuned: Tuned, store: Store) -> str | None:
    """Why the time of torch proves nothing, as told beside its samples; None where it may."""
    past = store.measurements(tuned.identity, winner.problem)
    alike = [one for one in past if one.kind == "torch" and one.us == winner.torch_us]
    return alike[-1].conditions.get("foul") if alike else None


def _taken(problem: Problem, tuned: Tuned) -> Dispatch | None:
    """What a neighbour gives a problem that was not reached; None where the heuristic serves it."""
    if tuned.table is None:
        return None
    dispatch = lookup(resolve(problem.at(0), tuned.identity, tuned.table), problem.m)
    return dispatch if dispatch.source == "transfer" else None


def source(task: Task, winner: Winner | None) -> str:
    """Where the served config comes from: "tuned", "heuristic" (proven to be the best known), or
    "untuned", which a neighbour may serve nevertheless."""
    if winner is None:
        return "untuned"
    return "heuristic" if winner.config == task.candidates.heuristic else "tuned"


def ms_per_token(tasks: list[Task], winners: dict[str, Winner]) -> dict[str, float | None]:
    """Milliseconds in the model's tuned linear layers for one token, at the smallest m."""
    m = min((task.problem.m for task in tasks), default=1)
    rows = [
        (task.group.count, winners.get(task.problem.id)) for task in tasks if task.problem.m == m
    ]
    if not rows or any(winner is None for _, winner in rows):
        return {"tuned": None, "heuristic": None, "torch": None}
    return {
        name: sum(count * getattr(winner, field) for count, winner in rows) / 1e3 / m
        for name, field in (("tuned", "us"), ("heuristic", "heuristic_us"), ("torch", "torch_us"))
    }


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("layer", "left"),
    ("n", "right"),
    ("k", "right"),
    ("m", "right"),
    ("config", "left"),
    ("µs", "right"),
    ("heuristic", "right"),
    ("torch", "right"),
    ("limit", "right"),
    ("source", "left"),
)
"""Times in microseconds; `limit` is the memory-bandwidth limit's share of the time."""

_UNSURE = "?"
"""Behind a time of torch that was taken beside other work."""


def print_table(report: dict[str, Any], console: Console) -> None:
    """The report for a person."""
    table = Table(
        title=f"{report['model']} on {report['device']}", title_justify="left", box=SIMPLE_HEAD
    )
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify, no_wrap=justify == "right")
    for line in report["problems"]:
        share = f"{line['limit_us'] / line['us']:.0%}" if line["us"] else "-"
        table.add_row(
            ", ".join(line["layers"]),
            str(line["n"]),
            str(line["k"]),
            str(line["m"]),
            _config(line["config"]),
            _us(line["us"]),
            _us(line["heuristic_us"]),
            _us(line["torch_us"]) + _UNSURE * bool(line["torch_foul"]),
            share,
            line["source"],
        )
    console.print(table)
    for skip in report["skipped"]:
        console.print(
            f"skipped {', '.join(skip['layers'])} (n={skip['n']}, k={skip['k']}): {skip['reason']}"
        )
    for warning in report["warnings"]:
        console.print(f"warning: {warning}")
    _print_summary(report, console)


def _print_summary(report: dict[str, Any], console: Console) -> None:
    ms = report["ms_per_token"]
    m = min((line["m"] for line in report["problems"]), default=1)
    if ms["tuned"] is not None:
        unsure = any(line["torch_foul"] for line in report["problems"] if line["m"] == m)
        console.print(
            f"{ms['tuned']:.2f} ms a token in linear layers (torch {ms['torch']:.2f}"
            f"{_UNSURE * unsure}, heuristic {ms['heuristic']:.2f})"
        )
    foul = [line["torch_foul"] for line in report["problems"] if line["torch_foul"]]
    if foul:
        console.print(
            f"{_UNSURE}: nothing is proven by {counted(len(foul), 'time')} of torch, as {foul[0]}; "
            "tune into a new database on a calm machine to compare"
        )
    open_problems = len(report["problems"]) - report["settled"]
    if report["measured"] == 0 and open_problems == 0:
        console.print("measured nothing: every problem is settled (--continue searches on)")
    else:
        console.print(f"measured {counted(report['measured'], 'candidate')}")
        if open_problems:
            console.print(
                f"{counted(open_problems, 'problem')} not reached: run again, or give a larger "
                "--budget"
            )


def _config(values: dict[str, Any]) -> str:
    return str(config_from_dict(values))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
