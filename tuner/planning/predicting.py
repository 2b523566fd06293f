"""The command `plan`: what a tuning would do, with a predicted time, and nothing run. The road
itself is pipeline.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from humming.jit.identity import here
from humming.settings import database_url
from humming.spec.device import Device
from humming.spec.naming import counted
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.planning.durations import durations, predicted_s
from tuner.planning.tasks import Task, make_tasks
from tuner.searching.compile_pool import cores
from tuner.searching.stopping import PATIENCE
from tuner.store.migrate import revision
from tuner.store.open import open_store
from tuner.workload import read_workload, to_json

START_S = 6.0
"""Python, torch, the worker, and reading the memory's speed."""

COMPILE_S, TRIAL_S, FINALS_S = 1.0, 0.4, 2.0
"""Guesses for a machine without evidence (seen on a two-core EPYC); stored times take their
place."""

TYPICAL_TRIALS = 24 + PATIENCE


def plan_json(
    model: Path,
    tp: int,
    format: str | None,
    m_values: tuple[int, ...],
    device: Device,
    db: str | None,
    unfused: bool = False,
) -> dict[str, Any]:
    """The contract's plan, and under "tuning" one row for each problem that would be tuned on
    `device`."""
    workload = read_workload(model, tp, format, unfused)
    tasks, skipped = make_tasks(workload, m_values, device, load_spaces())
    return {
        **to_json(workload),
        "device": device.name,
        "tuning": [_tuning_row(task) for task in tasks],
        "not_tunable": [
            {"layers": list(skip.group.layers), "reason": skip.reason} for skip in skipped
        ],
        "predicted_s": round(_predicted_s(tasks, device, db), 1),
    }


def _tuning_row(task: Task) -> dict[str, Any]:
    problem = task.problem
    return {
        "layers": list(task.group.layers),
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "format": problem.format,
        "candidates": len(task.candidates.configs),
        "rejections": task.candidates.rejections,
    }


def _predicted_s(tasks: list[Task], device: Device, db: str | None) -> float:
    """Without a budget: for each problem that is not settled what its like took before; without
    any evidence, each kernel compiled once, and about TYPICAL_TRIALS trials a problem."""
    known, settled = _seen(device, db)
    left = [task for task in tasks if task.problem.id not in settled]
    if not left:
        return START_S
    took = [predicted_s(task.problem, known) for task in left]
    by_evidence = [seconds for seconds in took if seconds is not None]
    if len(by_evidence) == len(left):
        return START_S + sum(by_evidence)
    trials = [min(len(task.candidates.configs), TYPICAL_TRIALS) for task in left]
    distinct = len({key for task in left for key in task.candidates.configs})
    compiles = min(distinct, sum(trials))
    guessed = compiles * COMPILE_S / cores() + sum(trials) * TRIAL_S + len(left) * FINALS_S
    return START_S + guessed


def _seen(device: Device, db: str | None) -> tuple[dict[Problem, float], set[str]]:
    """What problems took to settle, and which are: nothing without a database."""
    url = database_url(db)
    if revision(url) is None:
        return {}, set()
    identity = here(device)
    with open_store(url, write=False) as store:
        settled = store.settled(identity)
        return durations(store.measurements(identity), settled), set(settled)


def print_plan(result: dict[str, Any], console: Console) -> None:
    """The plan for a person."""
    for title, rows in (("quantized", result["problems"]), ("16-bit", result["unquantized"])):
        for row in rows:
            experts = f", {row['experts']} experts, top {row['top_k']}" if row["experts"] else ""
            console.print(
                f"{title}: {row['count']} x {', '.join(row['layers'])}  n={row['n']} k={row['k']} "
                f"{row['format']}{experts}",
                highlight=False,
            )
    for row in result["tuning"]:
        rejected = sum(row["rejections"].values())
        console.print(
            f"tune: n={row['n']} k={row['k']} m={row['m']}: "
            f"{counted(row['candidates'], 'candidate')}, {rejected} rejected",
            highlight=False,
        )
    for reason in sorted({row["reason"] for row in result["not_tunable"]}):
        console.print(f"not tunable here: {reason}", highlight=False)
    for warning in result["warnings"]:
        console.print(f"warning: {warning}", highlight=False)
    console.print(
        f"predicted time on {result['device']}: {result['predicted_s']:.0f} s", highlight=False
    )
