"""A whole model tuned from nothing within a budget, then searched on: what the first table loses to
the best that is known in the end. Each command takes up the database and the file of the last one.

python -m benchmarks.resumed --model DIR --device cuda:0 --m 1,16 --db FILE --out FILE --budget 300s
python -m benchmarks.resumed ... --budget 280s --continue
python -m benchmarks.resumed ... --budget 280s --exhaust
python -m benchmarks.resumed ... --compare 60s

`--exhaust` tries what no search has tried, without the rule that ends one and without finals, until
nothing is left: what more time could not better. What comes of it is for `--compare` to say.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.provenance import provenance
from benchmarks.referee import referee
from humming.jit.detect import find_device
from humming.jit.identity import here, serving_device
from humming.settings import tables_dir
from humming.spec.config import KernelConfig, config_from_dict, config_id, config_to_dict
from humming.spec.device import Device
from tuner import pipeline
from tuner.pipeline import Job, plan, tune
from tuner.planning.budget import Budget, parse_duration
from tuner.planning.durations import durations
from tuner.planning.tasks import Task, parse_m
from tuner.planning.weights import weights
from tuner.progress import Watch
from tuner.searching import search as searching
from tuner.store.open import open_store
from tuner.store.records import Winner
from tuner.worker.isolation import Worker, WorkerLostError

FASTEST = 3
"""Candidates with the least times that meet the first and the last winner in the comparison."""
NEAR = 1.01
"""Those only that took at most NEAR times the first winner's time: what is slower is not better."""
OPENINGS = 2


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--m", default="1,2,4,8,16,32,64,128,256,1024")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--db", type=Path, required=True, help="A SQLite file.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", default="300s")
    parser.add_argument("--continue", dest="resume", action="store_true")
    parser.add_argument("--exhaust", action="store_true", help="Try all candidates.")
    parser.add_argument("--compare", default=None, help="Compare, for at most so long.")
    asked = parser.parse_args()
    device = serving_device() if asked.device == "cpu" else find_device(asked.device)
    body = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {"runs": []}
    if asked.compare:
        body["compared"] = _compared(asked, device, body, parse_duration(asked.compare))
    else:
        body["runs"].append(_exhaust(asked, device) if asked.exhaust else _run(asked))
        body.setdefault("first", _served(asked.db, device))
        body.setdefault("first_problems", _problems(asked.db, device))
        body["last_problems"] = _problems(asked.db, device)
    body = {"what": __doc__.splitlines()[0], "provenance": provenance(device), "m": asked.m, **body}
    asked.out.write_text(json.dumps(body, indent=1) + "\n", "utf-8")


def _run(asked: argparse.Namespace) -> dict[str, Any]:
    """One command of the main job; its wall time from outside, the start of the process in it."""
    command = [sys.executable, "-m", "tuner.cli", "--model", asked.model, "--json", "--m", asked.m]
    command += ["--device", asked.device, "--db", str(asked.db), "--budget", asked.budget]
    command += ["--continue"] if asked.resume else []
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    wall_s = time.monotonic() - start
    report = json.loads(done.stdout)
    found = {
        "budget_s": parse_duration(asked.budget),
        "continued": asked.resume,
        "wall_s": round(wall_s, 2),
        "trials": report["measured"],
        "settled": report["settled"],
        "problems": len(report["problems"]),
        "load_average": os.getloadavg()[0],
    }
    print(found, flush=True)
    return found


def _exhaust(asked: argparse.Namespace, device: Device) -> dict[str, Any]:
    """The main job in this process, searching on, without the rule that ends a search, and without
    finals, which would take a good part of the time."""
    setattr(searching, "stop", lambda *_: False)  # noqa: B010  (not exported)
    setattr(pipeline, "hold_finals", lambda *_: True)  # noqa: B010
    url, seconds = f"sqlite:///{asked.db}", parse_duration(asked.budget)
    job = Job(Path(asked.model), device, parse_m(asked.m), resume=True)
    start = time.monotonic()
    with open_store(url) as store:
        watch = Watch(Console(file=sys.stderr), quiet=True)
        tuned = tune(job, store, tables_dir(url), Budget(seconds), watch)
        ended = Counter(settled.reason for settled in store.settled(tuned.identity).values())
    found = {
        "budget_s": seconds,
        "exhausting": True,
        "wall_s": round(time.monotonic() - start, 2),
        "trials": tuned.measured,
        "ended": dict(ended),
        "candidates": sum(len(task.candidates.configs) for task in tuned.tasks),
    }
    print(found, flush=True)
    return found


def _served(database: Path, device: Device) -> dict[str, dict[str, Any]]:
    """Problem id -> the config that serves it."""
    return {
        key: config_to_dict(winner.config) for key, winner in _winners(database, device).items()
    }


def _winners(database: Path, device: Device) -> dict[str, Winner]:
    with open_store(f"sqlite:///{database}") as store:
        return {winner.problem.id: winner for winner in store.winners(here(device))}


def _problems(database: Path, device: Device) -> list[dict[str, Any]]:
    """How each problem went: seconds, trials, why its search ended."""
    identity = here(device)
    with open_store(f"sqlite:///{database}") as store:
        settled, evidence = store.settled(identity), store.measurements(identity)
    took = {problem.id: seconds for problem, seconds in durations(evidence, settled).items()}
    tried: dict[str, int] = {}
    for row in evidence:
        tried[row.problem_id] = tried.get(row.problem_id, 0) + (row.config is not None)
    shapes = {row.problem_id: row.problem for row in evidence}
    return [
        {
            "n": shapes[key].n,
            "k": shapes[key].k,
            "m": shapes[key].m,
            "trials": count,
            "seconds": round(took[key], 2) if key in took else None,
            "ended": settled[key].reason if key in settled else None,
        }
        for key, count in tried.items()
    ]


def _compared(
    asked: argparse.Namespace, device: Device, body: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Each problem's first winner, its last one and the fastest candidates of all evidence in
    paired rounds; problems of most weight first, as many as `seconds` allow."""
    end = time.monotonic() + seconds
    _, tasks, _ = plan(Job(Path(asked.model), device, parse_m(asked.m)))
    worth = weights(tasks, [])
    first = {key: config_from_dict(values) for key, values in body["first"].items()}
    last = _winners(asked.db, device)
    rows = []
    with Worker(device) as worker:
        for task in sorted(tasks, key=lambda task: -worth[task.problem.id]):
            key = task.problem.id
            if time.monotonic() > end or key not in first or key not in last:
                continue
            pool = contenders(first[key], last[key].config, _timed(asked.db, device, task))
            try:
                rows.append(_row(task, pool, device, worker, worth[key]))
            except WorkerLostError as lost:
                print(f"n={task.problem.n} k={task.problem.k} m={task.problem.m}: {lost}")
                continue
            print(json.dumps(rows[-1]), flush=True)
    return _summary(rows, tasks)


def _timed(database: Path, device: Device, task: Task) -> list[tuple[float, KernelConfig]]:
    with open_store(f"sqlite:///{database}") as store:
        found = store.measurements(here(device), task.problem)
    return [(row.us, row.config) for row in found if row.us is not None and row.config]


def contenders(
    first: KernelConfig, last: KernelConfig, timed: list[tuple[float, KernelConfig]]
) -> list[KernelConfig]:
    """The first winner, the last one, and the fastest candidates of all evidence that may be better
    than the first."""
    bar = min((us for us, config in timed if config == first), default=math.inf) * NEAR
    faster = sorted((pair for pair in timed if pair[0] <= bar), key=lambda pair: pair[0])
    others = dict.fromkeys(config for _, config in faster if config not in (first, last))
    return [first, last, *list(others)[:FASTEST]]


def _row(
    task: Task, pool: list[KernelConfig], device: Device, worker: Worker, worth: float
) -> dict[str, Any]:
    problem, (first, last, *_) = task.problem, pool
    openings = OPENINGS if len(set(pool)) > 1 else 1
    judged = referee(pool, problem, device, worker, openings)
    best = judged.best
    return {
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "count": task.group.count,
        "weight": round(worth, 4),
        "first_us": round(judged.median_us(first), 3),
        "best_us": round(judged.median_us(best), 3),
        "regret": round(1.0 / judged.against(best, first)["ratio"] - 1.0, 4),
        "best_of_first": judged.against(best, first),
        "same": config_id(first) == config_id(last),
        "first": config_to_dict(first),
        "last": config_to_dict(last),
        "best": config_to_dict(best),
    }


def _summary(rows: list[dict[str, Any]], tasks: list[Task]) -> dict[str, Any]:
    """Regret by problem, by the time of all layers at each m, and over all by traffic."""
    by_m = {}
    for m in sorted({row["m"] for row in rows}):
        of = [row for row in rows if row["m"] == m]
        sums = [sum(row["count"] * row[name] for row in of) for name in ("first_us", "best_us")]
        by_m[m] = round(sums[0] / sums[1] - 1.0, 4)
    regrets = [row["regret"] for row in rows]
    total = sum(row["weight"] for row in rows) or 1.0
    found = {
        "compared": len(rows),
        "problems": len(tasks),
        "worst_regret": max(regrets, default=None),
        "median_regret": statistics.median(regrets) if regrets else None,
        "over_3_percent": sum(regret > 0.03 for regret in regrets),
        "over_3_percent_proven": sum(
            row["regret"] > 0.03 and not row["best_of_first"]["tie"] for row in rows
        ),
        "weighted_regret": round(sum(r["weight"] * r["regret"] for r in rows) / total, 4),
        "regret_of_all_layers_by_m": by_m,
    }
    print(json.dumps(found), flush=True)
    return {**found, "rows": rows}


if __name__ == "__main__":
    main()
