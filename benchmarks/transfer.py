"""What untuned layers would be served by, replayed on recorded sweeps: each layer is left out in
turn, a table is made of the others, and the runtime's own rule answers. Measures nothing.

python -m benchmarks.transfer FILE... --name NAME --out FILE; sweeps are made by sweep.py, of one
format and device and of several shapes; a file with rows, as benchmarks/heuristic.py has it, holds
many shapes at once. Only configs that were timed for a problem exist there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.heuristic import Row, device_of, rows_of
from benchmarks.replay import Sweep, read_sweep
from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import Interval, TableEntry, Trials, TunedTable, serve_intervals
from humming.dispatch.neighbours import offers, wanted
from humming.dispatch.transfer import MIN_EFFECT, Transfer
from humming.errors import HummingError, LegalityError, UsageError
from humming.spec.config import KernelConfig, config_from_dict, config_id
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.legality import config_violations
from humming.spec.problem import M_END, Problem

Times = Mapping[KernelConfig, float]


@dataclass(frozen=True)
class Evidence:
    """What was timed on one device: `us[problem][config]`, m in the problem."""

    device: Device
    us: Mapping[Problem, Times]

    def legal(self, config: KernelConfig, problem: Problem) -> bool:
        """Whether `config` was timed at `problem`; by the rules where nothing was."""
        if problem in self.us:
            return config in self.us[problem]
        return not config_violations(config, problem, self.device)

    @property
    def layers(self) -> list[Problem]:
        """Each layer, with m = 0."""
        return sorted({p.at(0) for p in self.us}, key=lambda p: (p.n, p.k))


@dataclass(frozen=True)
class Point:
    """One problem that was left out: microseconds of its best config, of the heuristic's, of what
    would be served, and of what the nearest neighbour has, evidence or not (None where no neighbour
    has any)."""

    problem: Problem
    taken: Transfer | None
    best_us: float
    heuristic_us: float
    served_us: float
    nearest_us: float | None


def read(paths: Sequence[Path]) -> Evidence:
    """Recorded evidence, of one device, as far as its configs are this version's. What was recorded
    twice, since other work disturbed it, took the least of its times."""
    times: dict[Problem, dict[KernelConfig, float]] = defaultdict(dict)
    device: Device | None = None
    for path in paths:
        body = json.loads(path.read_text("utf-8"))
        if "rows" in body:
            found, rows = device_of(body["device"]), rows_of(body)
        else:
            sweep = read_sweep(path)
            found, rows = sweep.device, list(_known(sweep))
        for problem, config, us in rows:
            times[problem][config] = min(us, times[problem].get(config, math.inf))
        if device is not None and replace(found, uuid=device.uuid) != device:
            raise UsageError(f"{path} is of another device than the files before it")
        device = found
    if device is None or not times:
        raise UsageError("the files have no time of a config that this version knows")
    return Evidence(device, times)


def _known(sweep: Sweep) -> Iterator[Row]:
    """A sweep's configs as this version has them; it no longer knows all of an old one."""
    made: dict[str, KernelConfig] = {}
    for key, config in sweep.configs.items():
        with contextlib.suppress(LegalityError):
            made[key] = config_from_dict({"family": config.family, **vars(config)})
    for m, of_m in sweep.us.items():
        yield from ((sweep.problem.at(m), made[key], us) for key, us in of_m.items() if key in made)


def identity_of(device: Device) -> Identity:
    """What all of the evidence is true of, for the replay."""
    return Identity(device, "replayed", "replayed", "", "", "", "")


def table_of(evidence: Evidence, left_out: Problem) -> TunedTable:
    """The table that tuning all layers but one would have written."""
    identity = identity_of(evidence.device)
    layers = [layer for layer in evidence.layers if layer != left_out]
    bare = [TableEntry(identity, layer, _intervals(evidence, layer)) for layer in layers]
    entries = [replace(entry, trials=tuple(_trials(evidence, entry, bare))) for entry in bare]
    return TunedTable("", tuple(entries))


def _intervals(evidence: Evidence, layer: Problem) -> tuple[Interval, ...]:
    found = {p.m: us for p, us in evidence.us.items() if p.at(0) == layer}
    best = {m: _winner(us, heuristic(layer.at(m), evidence.device)) for m, us in found.items()}
    return tuple(
        Interval(low, high, m, config, found[m][config], 1.0, f"{layer.n}x{layer.k} m={m}")
        for low, high, m, config in serve_intervals(best.items())
    )


def _winner(us: Times, default: KernelConfig) -> KernelConfig:
    """What a tuning would serve: a tie keeps the heuristic's."""
    best = min(us, key=lambda config: us[config])
    return default if us.get(default, math.inf) * (1.0 - MIN_EFFECT) <= us[best] else best


def _trials(
    evidence: Evidence, entry: TableEntry, entries: Sequence[TableEntry]
) -> Iterator[Trials]:
    """What the tuner would have tried: the neighbours' configs, as far as they were timed."""
    for interval in entry.intervals:
        problem = entry.problem.at(interval.m)
        us, default = evidence.us[problem], heuristic(problem, evidence.device)
        if default in us:
            near = wanted(problem, evidence.device, entries, len(entries), evidence.legal)
            ratios = {config_id(c): us[c] / us[default] for c in {*near, interval.config}}
            yield Trials(problem.m, config_id(default), tuple(sorted(ratios.items())))


def replay(evidence: Evidence) -> list[Point]:
    """Each problem whose heuristic config was timed, with its layer left out of the table."""
    points = []
    for layer in evidence.layers:
        table = table_of(evidence, layer)
        gaps = [(0, M_END)]
        found = list(offers(layer, evidence.device, table.entries, gaps, legal=evidence.legal))
        for problem in sorted((p for p in evidence.us if p.at(0) == layer), key=lambda p: p.m):
            us, default = evidence.us[problem], heuristic(problem, evidence.device)
            if default not in us:
                continue
            offer = next((o for o in found if o.low <= problem.m < o.high), None)
            near = wanted(problem, evidence.device, table.entries, 1, evidence.legal)
            points.append(
                Point(
                    problem,
                    offer.transfer if offer else None,
                    min(us.values()),
                    us[default],
                    us[offer.interval.config if offer else default],
                    us[near[0]] if near else None,
                )
            )
    return points


def summary(points: Sequence[Point]) -> dict[str, Any]:
    """Regret, in geometric mean and at most, of the heuristic, of what the runtime serves, and of
    the nearest neighbour without any evidence; over all points, and over those that a neighbour
    serves."""
    taken = [p for p in points if p.taken is not None]
    timed = [p for p in points if p.nearest_us is not None]
    return {
        "points": len(points),
        "heuristic": _regret([(p.heuristic_us, p.best_us) for p in points]),
        "served": _regret([(p.served_us, p.best_us) for p in points]),
        "taken": {
            "points": len(taken),
            "faster_than_heuristic": sum(_less(p.served_us, p.heuristic_us) for p in taken),
            "slower_than_heuristic": sum(_less(p.heuristic_us, p.served_us) for p in taken),
            "heuristic": _regret([(p.heuristic_us, p.best_us) for p in taken]),
            "served": _regret([(p.served_us, p.best_us) for p in taken]),
            "expected": _expected(taken),
        },
        "nearest_without_evidence": {
            "points": len(timed),
            "heuristic": _regret([(p.heuristic_us, p.best_us) for p in timed]),
            "nearest": _regret([(p.nearest_us, p.best_us) for p in timed]),
        },
    }


def _less(us: float, other_us: float) -> bool:
    return us < other_us * (1.0 - MIN_EFFECT)


def _regret(pairs: Sequence[tuple[float | None, float]]) -> dict[str, float] | None:
    ratios = [us / best for us, best in pairs if us is not None]
    if not ratios:
        return None
    mean = math.exp(statistics.mean(map(math.log, ratios)))
    return {"mean": round(mean - 1.0, 4), "most": round(max(ratios) - 1.0, 4)}


def _expected(taken: Sequence[Point]) -> dict[str, float] | None:
    """The regrets that the answers foretold, in the mean, and how many came out in the interval."""
    said = [(p.served_us / p.best_us - 1.0, p.taken.regret) for p in taken if p.taken is not None]
    if not said:
        return None
    return {
        "median_regret": round(statistics.mean(told.median for _, told in said), 4),
        "in_interval": sum(told.low - 0.005 <= came <= told.high + 0.005 for came, told in said),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; exit code 2 on unusable files."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--name", required=True, help="what the report calls these sweeps")
    parser.add_argument("--out", type=Path, help="report to write into, beside what it has")
    asked = parser.parse_args(arguments)
    try:
        evidence = read(asked.files)
    except (HummingError, OSError) as error:
        print(f"benchmarks.transfer: {error}", file=sys.stderr)
        return 2
    points = replay(evidence)
    row = {"device": evidence.device.name, "files": [path.name for path in asked.files]}
    row |= summary(points)
    print(json.dumps(row, indent=1))
    if asked.out is not None:
        known = json.loads(asked.out.read_text("utf-8")) if asked.out.exists() else {}
        known[asked.name] = {**row, "rows": [_row(point) for point in points]}
        asked.out.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return 0


def _row(point: Point) -> dict[str, Any]:
    problem = point.problem
    return {
        "format": problem.format,
        "n": problem.n,
        "k": problem.k,
        "m": problem.m,
        "source": "transfer" if point.taken else "heuristic",
        "best_us": point.best_us,
        "heuristic_us": point.heuristic_us,
        "served_us": point.served_us,
        "nearest_us": point.nearest_us,
        "said": None if point.taken is None else str(point.taken),
    }


if __name__ == "__main__":
    raise SystemExit(main())
