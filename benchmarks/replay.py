"""What a recorded sweep says without its device: how many trials each way to search takes to come
within 2 % of the best, and when it stops. Sweeps are made by sweep.py.

python -m benchmarks.replay benchmarks/results/sweep_*.json --seeds 8 --out FILE
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

from benchmarks.climber import Climber
from benchmarks.tpe import Samplers
from humming.spec.config import KernelConfig, config_id
from humming.spec.device import Device
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from search_spaces.select import select
from tuner.searching.stopping import SMALL, stop
from tuner.searching.surrogate import Surrogate

GOAL = 0.98
NEWS = 0.99


@dataclass(frozen=True)
class Sweep:
    """The time of every legal config of one layer at many m: `us[m][config id]`."""

    path: Path
    device: Device
    problem: Problem
    configs: dict[str, KernelConfig]
    heuristic: dict[int, str]
    us: dict[int, dict[str, float]]


class Searcher(Protocol):
    """What search.py works with."""

    def ask(self) -> KernelConfig | None: ...
    def tell(self, config: KernelConfig, us: float | None) -> None: ...
    def know(self, config: KernelConfig, us: float | None) -> None: ...


def read_sweep(path: Path) -> Sweep:
    """A file of sweep.py, of whatever version: its configs are those of `recorded`."""
    body = json.loads(path.read_text("utf-8"))
    configs = [recorded(values) for values in body["configs"]]
    ids = [config_id(config) for config in configs]
    device = dict(body["provenance"]["device"])
    device["isa"] = tuple(device["isa"])
    if device["compute_capability"] is not None:
        device["compute_capability"] = tuple(device["compute_capability"])
    return Sweep(
        path=path,
        device=Device(**device),
        problem=Problem(**body["problem"]),
        configs=dict(zip(ids, configs, strict=True)),
        heuristic={int(m): ids[index] for m, index in body["heuristic"].items()},
        us={
            int(m): {ids[int(index)]: us for index, us in times.items()}
            for m, times in body["us"].items()
            if times
        },
    )


def recorded(values: dict[str, Any]) -> KernelConfig:
    """A config with the knobs that it had when it was timed; families have got others since. It
    can be searched among its like, and not run."""
    knobs = {name: value for name, value in values.items() if name != "family"}
    made = _recorded_class(values["family"], tuple(knobs))(**knobs)
    return cast(KernelConfig, made)


@lru_cache(maxsize=64)
def _recorded_class(family: str, knobs: tuple[str, ...]) -> type[Any]:
    namespace: dict[str, Any] = {"family": family}
    if "block_m" not in knobs:
        namespace["block_m"] = 1
    return make_dataclass(f"Recorded_{family}", knobs, frozen=True, namespace=namespace)


def searchers(sweep: Sweep, m: int) -> dict[str, Callable[[int], Searcher]]:
    """Name -> a way to search the candidates at `m`, made with a seed."""
    legal = {key: sweep.configs[key] for key in sweep.us[m]}
    by_family: dict[str, dict[str, KernelConfig]] = {}
    for key, config in legal.items():
        by_family.setdefault(config.family, {})[key] = config
    spaces, name = load_spaces(), sweep.problem.format
    parameters = {
        family: dict(select(spaces, family, sweep.device, name).parameters) for family in by_family
    }
    ways: dict[str, Callable[[int], Searcher]] = {
        "random": lambda seed: Climber(legal, seed=seed, drawn_every=1),
        "tpe": lambda seed: Samplers(by_family, parameters, [], seed),
        "climb": lambda seed: Climber(legal, seed=seed),
        "surrogate": lambda seed: Surrogate(legal, seed=seed),
    }
    if any(type(config).__name__.startswith("Recorded") for config in legal.values()):
        del ways["tpe"]  # it makes configs of knobs, which must be this version's
    return ways


@dataclass(frozen=True)
class Replayed:
    """One search of one problem: `to_goal` trials until within GOAL of the best. The surrogate
    also stops by rule, after `stopped` trials, at `regret`."""

    m: int
    searcher: str
    candidates: int
    to_goal: int
    stopped: int | None = None
    regret: float | None = None


def replay(sweep: Sweep, m: int, name: str, searcher: Searcher) -> Replayed:
    """The heuristic's config first, then what the searcher asks for, until it has reached the goal
    and would have stopped."""
    times, best = sweep.us[m], min(sweep.us[m].values())
    first = sweep.heuristic[m]
    searcher.know(sweep.configs[first], times[first])
    least, trials, since_news = times[first], 1, 0
    to_goal = 1 if least * GOAL <= best else 0
    stopped: int | None = None
    regret: float | None = None
    model = searcher if isinstance(searcher, Surrogate) else None
    while not to_goal or (model and stopped is None):
        ends = model and len(times) > SMALL and stop(trials, since_news, model.expected_gain())
        if ends and stopped is None:
            stopped, regret = trials, least / best - 1.0
        config = searcher.ask()
        if config is None:
            break
        us = times[config_id(config)]
        searcher.tell(config, us)
        since_news = 0 if us < least * NEWS else since_news + 1
        least, trials = min(least, us), trials + 1
        if not to_goal and least * GOAL <= best:
            to_goal = trials
    if model and stopped is None:
        stopped, regret = trials, least / best - 1.0
    return Replayed(m, name, len(times), to_goal or trials, stopped, regret)


def compare(sweep: Sweep, seeds: int, names: Iterable[str] = ()) -> list[Replayed]:
    """Every way to search at every m of the sweep, `seeds` times."""
    found = []
    for m in sweep.us:
        for name, make in searchers(sweep, m).items():
            if not names or name in names:
                found += [replay(sweep, m, name, make(seed)) for seed in range(seeds)]
    return found


def summary(replays: list[Replayed]) -> dict[str, dict[str, float]]:
    """By searcher: trials to the goal (mean, median, nine in ten); until the rule stops, and what
    that costs."""
    found: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(r.searcher for r in replays):
        of = [r for r in replays if r.searcher == name]
        found[name] = {
            "mean_to_goal": round(statistics.mean(r.to_goal for r in of), 1),
            "median_to_goal": statistics.median(r.to_goal for r in of),
            "nine_in_ten_to_goal": sorted(r.to_goal for r in of)[int(0.9 * len(of))],
        }
        regrets = [r.regret for r in of if r.regret is not None]
        if regrets:
            found[name] |= {
                "mean_stopped": round(statistics.mean(r.stopped or 0 for r in of), 1),
                "mean_regret": round(statistics.mean(regrets), 4),
                "regret_over_3_percent": round(sum(r > 0.03 for r in regrets) / len(of), 4),
            }
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", default="", help="Searchers, separated by commas.")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = [name for name in asked.only.split(",") if name]
    rows: list[dict[str, Any]] = []
    for path in asked.sweeps:
        sweep = read_sweep(path)
        found = compare(sweep, asked.seeds, names)
        row = {
            "sweep": path.name,
            "device": sweep.device.name,
            "m": sorted(sweep.us),
            "searchers": summary(found),
        }
        rows.append(row)
        print(json.dumps(row, indent=1))
    if asked.out:
        body = {"goal": GOAL, "seeds": asked.seeds, "sweeps": rows}
        asked.out.write_text(json.dumps(body, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
