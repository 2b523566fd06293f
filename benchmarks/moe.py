"""Layers of experts on a GPU: our grouped kernels and humming-kernels', in turn on one device.

    python -m benchmarks.moe --peer DIR --out FILE [--budget 150s] [--db URL] [--layers a,b]
                             [--m 1,16] [--format mxfp4] [--seconds 300s]
    python -m benchmarks.moe --routing zipf1.2 --budget 60s --db URL --out FILE

The layers are tuned first, by our own tuner from an empty database (`--db` keeps it, or names one
that is tuned); without `--budget` the heuristic serves. m counts tokens; each call has one of
twelve random routings without balance. Sorting rows, and quantizing x, are no part of the times;
what our call takes with x quantized stands beside, as `served_us`. A side's time is the median of
its graph's replays, sides take turns. With a `--routing`, the two sides are ours as tuned for it
and ours as tuned for uniform routing.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.moe_layers import LAYERS, M_VALUES, OTHERS, Layer, Ours, problem_of
from benchmarks.moe_peer import ExpertsPeer, start_warming
from benchmarks.moe_tuned import compile_heuristics, database_in, tune_layers
from benchmarks.provenance import provenance
from humming.dispatch.heuristics import heuristic
from humming.errors import HummingError, UsageError
from humming.jit.detect import find_device
from humming.spec.config import KernelConfig, config_to_dict
from humming.spec.device import Device
from humming.spec.formats import QuantFormat
from humming.spec.naming import did_you_mean
from humming.spec.routing import UNIFORM, check_routing
from tuner.measuring.samples_cuda import cuda_sample
from tuner.planning.budget import parse_duration
from tuner.promoting.verdict import paired_ratio
from tuner.store.records import Winner

ROUNDS, REPLAYS = 5, 3
_FEW_REPLAYS_US = 300.0  # from where a replay takes so long that two are enough
_WARMING_SECONDS = 60.0
"""How long the peer's compilers are waited for; the rest is compiled when it is met."""
KNOWN = LAYERS | OTHERS


@dataclass(frozen=True)
class Asked:
    """What is compared; `seconds` for tuning, None: nothing is tuned; `warming`: the peer compiles
    ahead; `deadline` on time.monotonic's clock."""

    layers: Mapping[str, Layer]
    formats: Sequence[str]
    m_values: Sequence[int]
    device: Device
    routing: str
    seconds: float | None
    url: str
    peer: Path | None
    warming: bool
    deadline: float


@dataclass(frozen=True)
class Served:
    """The config that serves a point, and its record; the heuristic's has none."""

    config: KernelConfig
    record_id: str | None

    def row(self) -> dict[str, Any]:
        """As fields of a result's row."""
        return {
            "family": self.config.family,
            "config": config_to_dict(self.config),
            "config_text": str(self.config),
            "record_id": self.record_id,
        }


def measured(asked: Asked, took: dict[str, float]) -> Iterator[dict[str, Any]]:
    """A row for each format, layer and m, while there is time. `took` is told how long what came
    before took."""
    clock = time.monotonic()
    if asked.peer is not None and asked.warming:
        _warm(asked, asked.peer)
    took["warming_the_peer"] = time.monotonic() - clock
    winners = _winners(asked, asked.routing)
    uniform = winners if asked.routing == UNIFORM else _winners(asked, UNIFORM)
    took["tuning"] = time.monotonic() - clock - took["warming_the_peer"]
    peer = None if asked.peer is None else ExpertsPeer(asked.peer)
    try:
        for format in asked.formats:
            for name, layer in asked.layers.items():
                ours = Ours(layer, format, asked.device, asked.routing)
                if peer is not None:
                    peer.open_layer(layer, format)
                for m in asked.m_values:
                    if time.monotonic() > asked.deadline:
                        return
                    point = {"format": format, "layer": name, **vars(layer), "m": m}
                    served = _served(ours, m, winners, asked.routing)
                    sides = _sides(ours, peer, m, served)
                    if asked.routing != UNIFORM:
                        plain = _served(ours, m, uniform, UNIFORM)
                        sides["uniform_us"] = cuda_sample(ours.calls(m, plain.config))
                        point["uniform_config"] = str(plain.config)
                    yield {**point, **served.row(), **rounds(sides)}
                del ours
                torch.cuda.empty_cache()
    finally:
        if peer is not None:
            peer.close()


def _warm(asked: Asked, folder: Path) -> None:
    """Has the peer compile what it will need, while the heuristic's kernels are compiled."""
    warming = start_warming(folder, asked.layers.values(), asked.formats, asked.m_values)
    end = time.monotonic() + _WARMING_SECONDS
    for one in warming:
        one.wait(max(0.0, end - time.monotonic()))
        one.close()


def _winners(asked: Asked, routing: str) -> dict[str, Winner]:
    """What the tuner proved for `routing`; nothing where it is not asked."""
    of = asked.layers, asked.formats, asked.m_values, asked.device
    if asked.seconds is not None:
        return tune_layers(*of, asked.seconds, asked.url, routing)
    problems = [
        problem_of(layer, format, m, asked.device, routing)
        for layer in asked.layers.values()
        for format in asked.formats
        for m in asked.m_values
    ]
    compile_heuristics(problems, asked.device)
    return {}


def _served(ours: Ours, m: int, winners: Mapping[str, Winner], routing: str) -> Served:
    problem = problem_of(ours.layer, ours.format, m, ours.device, routing)
    winner = winners.get(problem.id)
    if winner is None:
        return Served(heuristic(problem, ours.device), None)
    return Served(winner.config, winner.id)


def _sides(
    ours: Ours, peer: ExpertsPeer | None, m: int, served: Served
) -> dict[str, Callable[[], float]]:
    samples = {"us": cuda_sample(ours.calls(m, served.config))}
    if peer is not None:
        peer.prepare_routed(m)
        samples["humming_kernels_us"] = lambda: peer.sample(1)
    if QuantFormat.parse(ours.format).activation is not None:
        samples["served_us"] = cuda_sample(ours.calls(m, served.config, whole=True))
    return samples


def rounds(samples: Mapping[str, Callable[[], float]]) -> dict[str, Any]:
    """Median times of the sides, which take turns, and how often ours, the first, fits into each
    other's, with its interval."""
    taken: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(ROUNDS):
        for name, sample in samples.items():
            first = sample()
            more = range(1 if first > _FEW_REPLAYS_US else REPLAYS - 1)
            taken[name].append(statistics.median([first, *(sample() for _ in more)]))
    found: dict[str, Any] = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in list(taken.items())[1:]:
        ratio = paired_ratio(times, taken["us"])
        found[name.replace("_us", "_ratio")] = [ratio.ratio, ratio.low, ratio.high]
    return found | {"samples_us": taken}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Geometric means of the peer's time over ours: m up to 64, from 256 on, all; and the least."""
    ratios = [(row["m"], row["humming_kernels_ratio"][0]) for row in rows if _compared(row)]
    found = {}
    for title, wanted in (
        ("m <= 64", range(65)),
        ("m >= 256", range(256, 1 << 31)),
        ("all", range(1 << 31)),
    ):
        logs = [math.log(ratio) for m, ratio in ratios if m in wanted]
        if logs:
            found[title] = math.exp(statistics.fmean(logs))
    if ratios:
        found["least"] = min(ratio for _, ratio in ratios)
    return found


def _compared(row: Mapping[str, Any]) -> bool:
    return "humming_kernels_ratio" in row


def by_format(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The summary of each format."""
    formats = dict.fromkeys(row["format"] for row in rows)
    return {f: summary([row for row in rows if row["format"] == f]) for f in formats}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moe", description=__doc__)
    parser.add_argument("--layers", default=",".join(LAYERS), help=f"of {', '.join(KNOWN)}")
    parser.add_argument("--m", default=",".join(map(str, M_VALUES)), help="token counts")
    parser.add_argument("--format", default="mxfp4,int4g128", help="weight formats, by commas")
    parser.add_argument("--routing", default=UNIFORM, help="another one than uniform: no peer")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--budget", help="tuning time of all points together, such as 150s")
    parser.add_argument("--db", help="database that keeps the evidence; by default none does")
    parser.add_argument("--seconds", default="1h", help="when to stop, tuning included")
    parser.add_argument("--peer", type=Path, help="folder in which humming-kernels is installed")
    parser.add_argument("--warm-peer", action="store_true", help="compile all its kernels ahead")
    parser.add_argument("--out", type=Path)
    found = parser.parse_args(arguments)
    try:
        names = found.layers.split(",")
        for name in names:
            if name not in KNOWN:
                wrong = f"'{name}'{did_you_mean(name, KNOWN)}"
                raise UsageError(f"--layers must be of {', '.join(KNOWN)}, but got {wrong}")
        found.layers = {name: KNOWN[name] for name in names}
        found.m_values = [int(m) for m in found.m.split(",")]
        found.formats = found.format.split(",")
        check_routing(found.routing)
        found.budget_s = None if found.budget is None else parse_duration(found.budget)
        found.seconds_s = parse_duration(found.seconds)
    except (ValueError, HummingError) as error:
        parser.error(str(error))
    if found.routing != UNIFORM:
        found.peer = None  # it draws its own routings
    found.peer = found.peer.resolve() if found.peer else None
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints a line a point, and writes all samples."""
    found, clock = parse_arguments(arguments), time.monotonic()
    rows: list[dict[str, Any]] = []
    took: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="humming-benchmark-") as folder, torch.inference_mode():
        device = find_device(found.device)
        asked = Asked(
            found.layers,
            found.formats,
            found.m_values,
            device,
            found.routing,
            found.budget_s,
            found.db or database_in(Path(folder)),
            found.peer,
            found.warm_peer,
            clock + found.seconds_s,
        )
        started = provenance(device)
        for row in measured(asked, took):
            rows.append(row)
            print(f"{time.monotonic() - clock:6.1f}", shown(row), flush=True)
            if found.out is not None:
                text = {
                    "benchmark": "moe",
                    "routing": found.routing,
                    "rounds": ROUNDS,
                    "seconds": {**took, "all": time.monotonic() - clock},
                    "provenance": started,
                    "rows": rows,
                    "summary": by_format(rows),
                }
                found.out.write_text(json.dumps(text, indent=1) + "\n", "utf-8")
    print(json.dumps(by_format(rows), indent=1))
    return 0


def shown(row: Mapping[str, Any]) -> str:
    """A row in one line."""
    told = [row["format"], row["layer"], f"m={row['m']}", f"{row['us']:.1f}"]
    for name in ("humming_kernels", "served", "uniform"):
        if f"{name}_us" in row:
            low, high = row[f"{name}_ratio"][1:]
            told.append(f"{name} {row[f'{name}_us']:.1f}")
            told.append(f"{row[f'{name}_ratio'][0]:.3f} ({low:.3f} .. {high:.3f})")
    return " ".join([*told, row["config_text"], "tuned" if row["record_id"] else "heuristic"])


if __name__ == "__main__":
    sys.exit(main())
