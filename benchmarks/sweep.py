"""Records a sweep: every legal config of one layer, or of several layers a sample that is the same
for all, checked, then timed at many m. What is made of it without the device is replay.py and
transfer.py.

python -m benchmarks.sweep --n 1024 --k 1024 --m 1,2,4 --device cpu --threads 1 --out FILE
python -m benchmarks.sweep --n 4096,8192 --k 4096,1024 --sample 24 --device cuda:0 --out FOLDER
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from humming.dispatch.heuristics import heuristic
from humming.jit.cache import CompiledKernel
from humming.jit.detect import find_device
from humming.jit.identity import serving_device
from humming.spec.canonical import plain
from humming.spec.config import KernelConfig, config_id, config_to_dict
from humming.spec.device import Device
from humming.spec.layouts import layout_for
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.planning.tasks import parse_m
from tuner.searching.candidates import legal_candidates
from tuner.searching.compile_pool import compile_all
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Open, Race, Raced, Trial, Trialled

ROUNDS = 5
TIMEOUT_S = 600.0
AT_ONCE = 48
"""Configs of one race. An m's configs meet in races of so many, the heuristic's in each of them."""


def main() -> None:
    """Command line."""
    asked = _arguments()
    device = serving_device(asked.threads) if asked.device == "cpu" else find_device(asked.device)
    m_values = parse_m(asked.m)
    layout = layout_for(device, asked.format)
    shapes = zip(_numbers(asked.n), _numbers(asked.k), strict=True)
    layers = [Problem(asked.format, n, k, 1, layout=layout) for n, k in shapes]
    shared = {m: _shared([layer.at(m) for layer in layers], device, asked.sample) for m in m_values}
    with Worker(device) as worker:
        for layer in layers:
            offered = {
                m: {
                    key: config
                    for key, config in configs.items()
                    if not config_violations(config, layer.at(m), device)
                }
                for m, configs in shared.items()
            }
            _sweep(asked, layer, offered, device, worker)


def _sweep(
    asked: argparse.Namespace,
    layer: Problem,
    offered: dict[int, dict[str, KernelConfig]],
    device: Device,
    worker: Worker,
) -> None:
    """One layer, written as far as it came after each m."""
    start = time.monotonic()
    configs = {key: config for of_m in offered.values() for key, config in of_m.items()}
    kernels = _compiled(configs, layer, device)
    said = f"n={layer.n} k={layer.k}: {len(kernels)} of {len(configs)} compiled"
    print(f"{said}, {time.monotonic() - start:.0f} s", flush=True)
    wrong = _check(kernels, configs, offered, layer, worker) if asked.check else {}
    print(f"{len(wrong)} wrong, {time.monotonic() - start:.0f} s", flush=True)
    times: dict[int, dict[str, float]] = {}
    for m in offered:
        keys = [key for key in offered[m] if key in kernels and key not in wrong]
        times[m] = _timed(keys, kernels, layer.at(m), device, worker, asked.rounds)
        best = min(times[m].values(), default=float("nan"))
        print(f"m={m}: {len(keys)} configs, best {best:.2f} us", flush=True)
        _write(asked, device, layer, configs, times, wrong, time.monotonic() - start)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", required=True, help="of each layer, separated by commas")
    parser.add_argument("--k", required=True, help="of each layer, in the same order")
    parser.add_argument("--m", default="1,2,4,8,16,32,64,128,256")
    parser.add_argument("--format", default="int4g128")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sample", type=int, help="so many configs, the same for all layers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, required=True, help="a file; of several a folder")
    return parser.parse_args()


def _shared(problems: list[Problem], device: Device, sample: int | None) -> dict[str, KernelConfig]:
    """All candidates of one layer at one m, or of several the `sample` of the least ids, which are
    hashes, and the heuristic's of each."""
    spaces = load_spaces()
    found: dict[str, KernelConfig] = {}
    for problem in problems:
        found |= legal_candidates(problem, device, spaces).configs
    defaults = [heuristic(problem, device) for problem in problems]
    kept = {key: found[key] for key in sorted(found)[:sample]} if sample else found
    return {**kept, **{config_id(default): default for default in defaults}}


def _compiled(
    configs: dict[str, KernelConfig], problem: Problem, device: Device
) -> dict[str, CompiledKernel]:
    results = compile_all(configs.values(), problem, device)
    found = zip(configs, results, strict=True)
    return {key: kernel for key, kernel in found if isinstance(kernel, CompiledKernel)}


def _check(
    kernels: dict[str, CompiledKernel],
    configs: dict[str, KernelConfig],
    offered: dict[int, dict[str, KernelConfig]],
    layer: Problem,
    worker: Worker,
) -> dict[str, str]:
    """Config id -> why it is left out: it crashed or its numbers are wrong."""
    wrong: dict[str, str] = {}
    done: set[str] = set()
    for m, of_m in offered.items():
        worker.open(Open(layer.at(m), m, m + 1), TIMEOUT_S)
        for key in of_m.keys() & kernels.keys() - done:
            done.add(key)
            try:
                request = Trial(kernels[key], configs[key].block_m, 1e-9)
                result = worker.ask(request, TIMEOUT_S)
            except WorkerLostError as lost:
                wrong[key] = str(lost)
                continue
            assert isinstance(result, Trialled)
            if result.outcome != "ok":
                wrong[key] = result.detail
    return wrong


def _timed(
    keys: list[str],
    kernels: dict[str, CompiledKernel],
    problem: Problem,
    device: Device,
    worker: Worker,
    rounds: int,
) -> dict[str, float]:
    """Config id -> microseconds.

    On a GPU medians, and races are joined by the heuristic's time in each. On a CPU the least of
    many short samples, as other work on the machine only adds to a time.
    """
    anchor = config_id(heuristic(problem, device))
    others = [key for key in keys if key != anchor]
    found: dict[str, float] = {}
    scale: float | None = None
    worker.open(Open(problem, problem.m, problem.m + 1), TIMEOUT_S)
    for first in range(0, len(others), AT_ONCE):
        group = [anchor, *others[first : first + AT_ONCE]]
        try:
            request = Race(tuple(kernels[key] for key in group), rounds, TIMEOUT_S, problem.m)
            raced = worker.ask(request, TIMEOUT_S)
        except WorkerLostError as lost:
            sys.stderr.write(f"m={problem.m}: a race was lost: {lost}\n")
            continue
        assert isinstance(raced, Raced)
        figure = min if device.kind == "cpu" else statistics.median
        times = [figure(side) for side in raced.samples_us]
        scale = scale if scale and device.kind == "cuda" else times[0]
        found |= {
            key: round(us * scale / times[0], 3) for key, us in zip(group, times, strict=True)
        }
    return found


def _write(
    asked: argparse.Namespace,
    device: Device,
    layer: Problem,
    configs: dict[str, KernelConfig],
    times: dict[int, dict[str, float]],
    wrong: dict[str, str],
    seconds: float,
) -> None:
    order = {key: index for index, key in enumerate(configs)}
    body: dict[str, Any] = {
        "provenance": provenance(device),
        "seconds": round(seconds, 1),
        "rounds": asked.rounds,
        "figure": "least" if device.kind == "cpu" else "median",
        "checked": asked.check,
        "problem": plain(layer.at(0)),
        "configs": [config_to_dict(config) for config in configs.values()],
        "heuristic": {m: order[config_id(heuristic(layer.at(m), device))] for m in times},
        "wrong": {order[key]: why for key, why in wrong.items()},
        "us": {m: {order[key]: us for key, us in of_m.items()} for m, of_m in times.items()},
    }
    file = asked.out
    if file.is_dir():
        file = file / f"sweep_{device.kind}_{layer.format}_{layer.n}x{layer.k}.json"
    file.write_text(json.dumps(body, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
