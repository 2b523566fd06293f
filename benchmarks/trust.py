"""Whether tunings can be trusted, on a device: problems tuned many times from nothing, budgets, the
plan's time against the clock. What more evidence changes is resumed.py.

python -m benchmarks.trust tunings --count 10 --model DIR --m 16 --budget 20s --out FILE
python -m benchmarks.trust budgets --seconds 30,120,600 --model DIR --m 1,16,256 --out FILE
python -m benchmarks.trust plan --model DIR --m 1,16 --then 4,64 --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.provenance import provenance
from benchmarks.referee import referee
from humming.jit.detect import find_device
from humming.jit.identity import here, serving_device
from humming.spec.config import config_id, config_to_dict
from humming.spec.device import Device
from tuner.pipeline import Job, plan, read_bytes_per_s, settle
from tuner.planning.budget import Budget, parse_duration
from tuner.planning.tasks import parse_m
from tuner.progress import Watch
from tuner.promoting.verdict import paired_ratio
from tuner.searching.trials import Scope
from tuner.store.open import open_store
from tuner.store.records import Winner
from tuner.worker.isolation import Worker


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("tunings", "budgets", "plan"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--m", default="16")
    parser.add_argument("--then", default="4,64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--format", default=None)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--seconds", default="30,120,600")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device = serving_device() if asked.device == "cpu" else find_device(asked.device)
    work = {"tunings": _tunings, "budgets": _budgets, "plan": _plan}
    with tempfile.TemporaryDirectory(prefix="humming-trust-") as folder:
        found = work[asked.what](asked, device, Path(folder))
    body = {"what": asked.what, "provenance": provenance(device), "asked": _shown(asked), **found}
    asked.out.write_text(json.dumps(body, indent=1) + "\n", "utf-8")


def _shown(asked: argparse.Namespace) -> dict[str, Any]:
    return {name: str(value) for name, value in vars(asked).items() if name != "out"}


def _run(asked: argparse.Namespace, database: Path, *more: str) -> tuple[dict[str, Any], float]:
    """The main job's JSON, and its wall time from outside."""
    command = [sys.executable, "-m", "tuner.cli", *more, "--model", asked.model, "--json"]
    command += ["--device", asked.device, "--db", str(database)]
    command += ["--format", asked.format] if asked.format else []
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout), time.monotonic() - start


def _tunings(asked: argparse.Namespace, device: Device, folder: Path) -> dict[str, Any]:
    """The same problems tuned `count` times from nothing, by one worker. A flip is a served config
    that is not the first tuning's: reported with what both took in the rounds of one tuning."""
    runs: list[dict[str, Winner]] = []
    job = Job(Path(asked.model), device, parse_m(asked.m), format=asked.format)
    identity, (_, tasks, _) = here(device), plan(job)
    watch = Watch(Console(file=sys.stderr), quiet=True)
    with Worker(device) as worker:
        rate = read_bytes_per_s(worker, Budget(None))
        for index in range(asked.count):
            start = time.monotonic()
            with open_store(f"sqlite:///{folder}/{index}.db") as store:
                for task in tasks:
                    budget = Budget(parse_duration(asked.budget))
                    settle(Scope(task, identity, store, worker, watch, rate, budget), budget, False)
                found = store.winners(identity)
                trials = sum(m.kind != "torch" for m in store.measurements(identity))
            runs.append({winner.problem.id: winner for winner in found})
            seconds = time.monotonic() - start
            print(f"tuning {index}: {seconds:.1f} s, {trials} trials, {len(found)}", flush=True)
    problems: list[dict[str, Any]] = []
    for key in runs[0]:
        served = [run[key] for run in runs if key in run]
        configs = [config_id(winner.config) for winner in served]
        first = served[0].problem
        problems.append(
            {
                "n": first.n,
                "k": first.k,
                "m": first.m,
                "served": {name: configs.count(name) for name in dict.fromkeys(configs)},
                "configs": {config_id(w.config): config_to_dict(w.config) for w in served},
                "us": [winner.us for winner in served],
                "flips": sum(name != configs[0] for name in configs),
                "shared_rounds": _shared(served),
                "referee": _judged(served, device),
            }
        )
        print(problems[-1]["served"], [round(us, 2) for us in problems[-1]["us"]], flush=True)
    judged = [pair for problem in problems for pair in problem["referee"]]
    return {
        "problems": problems,
        "flips": sum(problem["flips"] for problem in problems),
        "flips_that_are_no_ties": sum(not pair["tie"] for pair in judged),
    }


def _judged(served: list[Winner], device: Device) -> list[dict[str, Any]]:
    """Each config that served in a tuning against the one that served most often."""
    names = [config_id(winner.config) for winner in served]
    configs = {config_id(winner.config): winner.config for winner in served}
    most = max(configs, key=names.count)
    if len(configs) < 2:
        return []
    with Worker(device) as worker:
        judge = referee(list(configs.values()), served[0].problem, device, worker, openings=6)
    return [
        {"served": name, "other": most, **judge.against(configs[name], configs[most])}
        for name in configs
        if name != most
    ]


def _shared(served: list[Winner]) -> list[dict[str, Any]]:
    """Pairs of configs that serve in different tunings and met in the finals of one: their paired
    ratio and interval there."""
    names = list(dict.fromkeys(config_id(winner.config) for winner in served))
    found = []
    for winner in served:
        rounds = winner.evidence.get("rounds_us", {})
        mine = config_id(winner.config)
        for other in names:
            if other != mine and other in rounds and mine in rounds:
                seen = paired_ratio(rounds[mine], rounds[other])
                found.append(
                    {
                        "served": mine,
                        "other": other,
                        "ratio": seen.ratio,
                        "low": seen.low,
                        "high": seen.high,
                    }
                )
    return found


def _budgets(asked: argparse.Namespace, device: Device, folder: Path) -> dict[str, Any]:
    """Wall time of a tuning from nothing for each budget."""
    rows = []
    for seconds in map(float, asked.seconds.split(",")):
        database = folder / f"{seconds:g}.db"
        report, wall_s = _run(asked, database, "--m", asked.m, "--budget", f"{seconds:g}s")
        settled, problems = report["settled"], len(report["problems"])
        rows.append(
            {
                "budget_s": seconds,
                "wall_s": round(wall_s, 2),
                "over_s": round(wall_s - seconds, 2),
                "holds": wall_s <= seconds + max(2.0, 0.05 * seconds),
                "settled": settled,
                "problems": problems,
                "load_average": os.getloadavg()[0],
            }
        )
        print(rows[-1], flush=True)
    return {"budgets": rows, "device": device.name}


def _plan(asked: argparse.Namespace, device: Device, folder: Path) -> dict[str, Any]:
    """Tunes `m`, asks the plan for the time of `then`, and tunes `then`."""
    database = folder / "plan.db"
    _, first_s = _run(asked, database, "--m", asked.m)
    planned, _ = _run(asked, database, "plan", "--m", asked.then)
    _, wall_s = _run(asked, database, "--m", asked.then)
    found = {
        "first_s": round(first_s, 1),
        "predicted_s": planned["predicted_s"],
        "wall_s": round(wall_s, 1),
        "predicted_of_wall": round(planned["predicted_s"] / wall_s, 3),
    }
    print(found, flush=True)
    return {**found, "device": device.name}


if __name__ == "__main__":
    main()
