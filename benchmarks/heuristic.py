"""`python -m benchmarks.heuristic FILE`: how far the GPU heuristic is from what was tuned, for
shapes whose evidence its constants have not seen.

FILE holds what a tuner measured, one row a config; `--db URL` writes it from a database. For each
shape the constants of the family wgmma are fitted to the other shapes' rows, and choose among the
configs that were measured for this one. Few rows of x are served by the family skinny, whose rules
have no such constants: there the heuristic's own config counts. Measures nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from humming.dispatch.heuristics import heuristic
from humming.dispatch.heuristics_wgmma import COSTS, WgmmaCosts, wgmma_cost
from humming.errors import HummingError, UsageError
from humming.spec.config import KernelConfig, WgmmaConfig, config_from_dict, config_to_dict
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import wgmma_deal
from humming.spec.problem import Problem

_CYCLES_OF_US = 1750.0
_STEPS = (1.5, 1.15, 1.04)
_ROUNDS = 4

Row = tuple[Problem, KernelConfig, float]


def evidence(url: str, device: Device) -> list[dict[str, Any]]:
    """The best median of every config that was right on `device`, from the database `url`."""
    from humming.jit.identity import here
    from tuner.store.open import open_store

    best: dict[tuple[Problem, KernelConfig], float] = {}
    with open_store(url) as store:
        for found in store.measurements(here(device), outcome="ok"):
            if found.config is not None and found.us is not None:
                key = found.problem, found.config
                best[key] = min(found.us, best.get(key, math.inf))
    return [
        {"format": p.format, "n": p.n, "k": p.k, "m": p.m, "config": config_to_dict(c), "us": us}
        for (p, c), us in best.items()
    ]


def rows_of(report: dict[str, Any]) -> list[Row]:
    """The file's rows."""
    return [
        (
            Problem(row["format"], row["n"], row["k"], row["m"], layout=CUDA_LAYOUT),
            config_from_dict(row["config"]),
            row["us"],
        )
        for row in report["rows"]
    ]


def fitted(rows: Sequence[Row], device: Device, start: WgmmaCosts = COSTS) -> WgmmaCosts:
    """The constants by which the logarithms of predicted and measured times differ least, found one
    constant after another."""
    of_family = [(p, c, us) for p, c, us in rows if isinstance(c, WgmmaConfig)]

    def error(costs: WgmmaCosts) -> float:
        return sum(
            min(0.5, abs(math.log(wgmma_cost(c, p, device, costs) / _CYCLES_OF_US / us)))
            for p, c, us in of_family
        )

    best, least = start, error(start)
    for step in _STEPS:
        for _ in range(_ROUNDS):
            before = least
            for field in fields(WgmmaCosts):
                for factor in (step, 1 / step):
                    value = getattr(best, field.name) * factor
                    tried = replace(best, **{field.name: value})
                    found = error(tried)
                    if found < least:
                        best, least = tried, found
            if least == before:
                break
    return best


def left_out(rows: Sequence[Row], device: Device) -> list[dict[str, Any]]:
    """Each point's best time, and what is chosen for it without its shape's rows."""
    shapes = sorted({(p.format, p.n, p.k) for p, _, _ in rows})
    found = []
    for shape in shapes:
        own = [row for row in rows if (row[0].format, row[0].n, row[0].k) == shape]
        costs = fitted([row for row in rows if row not in own], device)
        found += [_point(own, m, costs, device) for m in sorted({p.m for p, _, _ in own})]
    return found


def _point(own: Sequence[Row], m: int, costs: WgmmaCosts, device: Device) -> dict[str, Any]:
    problem = next(p for p, _, _ in own if p.m == m)
    slowest_first = sorted((row for row in own if row[0].m == m), key=lambda row: -row[2])
    measured = {_in_effect(config, p, device): us for p, config, us in slowest_first}
    best = min(measured, key=lambda config: measured[config])
    default = _in_effect(heuristic(problem, device), problem, device)
    chosen: KernelConfig | None = default
    if isinstance(default, WgmmaConfig):
        of_family = [config for config in measured if isinstance(config, WgmmaConfig)]
        chosen = min(of_family, key=lambda c: wgmma_cost(c, problem, device, costs), default=None)
    return {
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": m,
        "configs": len(measured),
        "best": str(best),
        "best_us": measured[best],
        "chosen": None if chosen is None else str(chosen),
        "chosen_us": None if chosen is None else measured.get(chosen),
        "default": str(default),
        "default_us": measured.get(default),
    }


def _in_effect(config: KernelConfig, problem: Problem, device: Device) -> KernelConfig:
    """`config` without what does nothing at this m: an order of rows of tiles that are all in one
    group, and a cut of k where none is left over."""
    if not isinstance(config, WgmmaConfig):
        return config
    if problem.m <= config.raster_group_m * config.block_m:
        config = replace(config, raster_group_m=8)
    dealt = wgmma_deal(config, problem.m, problem.n, problem.k, device.sm_count or 1)
    return config if dealt.runs else replace(config, stream_k=0)


def mean_ratio(points: Sequence[dict[str, Any]], what: str) -> float:
    """Geometric mean of `what`'s times over the best ones, of the points that have one."""
    ratios = [p[f"{what}_us"] / p["best_us"] for p in points if p[f"{what}_us"] is not None]
    if not ratios:
        raise UsageError("no point of the file has a time of what the heuristic chooses")
    return math.exp(statistics.mean(map(math.log, ratios)))


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.heuristic", description=__doc__)
    parser.add_argument("file", type=Path, help="evidence, as --db writes it")
    parser.add_argument("--db", help="write the file from this database, and end")
    parser.add_argument("--device", default="auto", help="with --db: whose evidence")
    parser.add_argument("--fit", action="store_true", help="print constants fitted to all rows")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes points and means into the file, beside its evidence; exit code 2 on unusable input."""
    found = parse_arguments(arguments)
    try:
        if found.db is not None:
            report = _from_database(found.db, found.device)
            _write(report, found.file)
            return 0
        report = json.loads(found.file.read_text("utf-8"))
        device = device_of(report["device"])
        points = left_out(rows_of(report), device)
        report["points"] = points
        for what in ("chosen", "default"):
            report[f"{what}_over_best"] = mean_ratio(points, what)
            print(f"{what}: {report[f'{what}_over_best']:.3f} times the best")
        if found.fit:
            print(fitted(rows_of(report), device))
    except (HummingError, OSError) as error:
        print(f"benchmarks.heuristic: {error}", file=sys.stderr)
        return 2
    _write(report, found.file)
    return 0


def _write(report: dict[str, Any], file: Path) -> None:
    """With a line for each row of the evidence."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in report["rows"])
    text = json.dumps({**report, "rows": []}, indent=1)
    file.write_text(text.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n", "utf-8")


def _from_database(url: str, name: str) -> dict[str, Any]:
    from benchmarks.provenance import provenance
    from humming.jit.detect import find_device

    device = find_device(name)
    rows = evidence(url, device)
    if not rows:
        raise UsageError("the database has no evidence of this device and these kernels")
    return {"provenance": provenance(device), "device": asdict(device), "rows": rows}


def device_of(values: dict[str, Any]) -> Device:
    """The device that a report names."""
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Device(**lists)


if __name__ == "__main__":
    raise SystemExit(main())
