"""`python -m benchmarks.dispatch`: what a call of a layer costs beside its launch, on a warm path.

The layer is as small as layers are, so that its kernel takes next to nothing, and is called as a
user calls it. In the same rounds a bare module is called that checks nothing and knows its kernel:
it allocates the output and launches. What the layer takes beyond that, less one look-up in a
dictionary, is the cost of dispatch: choosing the kernel, and checking that a call is such as it may
be. Rounds that other work disturbed are left out, and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.provenance import provenance
from humming.errors import HummingError
from humming.jit.identity import serving_device
from humming.linear import HummingLinear
from tuner.measuring.conditions import CpuMonitor, foul

N, K = 128, 128
CALLS = 100
"""Calls of one sample."""


class _Bare(nn.Module):
    """Allocates, launches what it was given, and checks nothing."""

    def __init__(self, layer: HummingLinear, m: int, dtype: torch.dtype) -> None:
        super().__init__()
        ready, nbytes = layer._plans[dtype, 1].ready(m, layer._packed(), None)
        assert ready is not None
        self._ready, self._nbytes, self._m = ready, nbytes, m
        self._scratch = torch.empty(nbytes, dtype=torch.uint8)
        self._address = self._scratch.data_ptr()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(self._m, N)
        self._ready(x.data_ptr(), out.data_ptr(), self._address, self._nbytes)
        return out


def make_sides(m: int, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """Name -> what is called."""
    linear = nn.Linear(K, N, bias=False, dtype=dtype)
    layer = HummingLinear.from_linear(linear, "int4g128").prepare(m=m)
    bare, x = _Bare(layer, m, dtype), torch.randn(m, K, dtype=dtype)
    key, table = (x.shape, x.dtype, 1), {(x.shape, x.dtype, 1): bare}
    assert torch.equal(layer(x), bare(x))
    return {
        "layer": lambda: layer(x),
        "bare": lambda: bare(x),
        "nn.Linear": lambda: linear(x),
        "look-up": lambda: table.get(key),
        "loop": lambda: None,
    }


def run(m: int, dtype: torch.dtype, rounds: int) -> dict[str, Any]:
    """Samples of all sides in `rounds` rounds, in random order within a round, and the result."""
    torch.set_num_threads(1)
    sides = make_sides(m, dtype)
    draw, monitor, foul_rounds = random.Random(0), CpuMonitor(), 0
    taken: dict[str, list[float]] = {name: [] for name in sides}
    with torch.inference_mode():
        for _ in range(rounds):
            monitor.begin()
            order = draw.sample(list(sides), len(sides))
            samples = {name: _sample(sides[name]) for name in order}
            if foul(monitor.end()) is not None:
                foul_rounds += 1
                continue
            for name, us in samples.items():
                taken[name].append(us)
    if not taken["layer"]:
        raise HummingError("other work disturbed every round; run this on a calm machine")
    us = {name: statistics.median(samples) for name, samples in taken.items()}
    rows = zip(*(taken[name] for name in ("layer", "bare", "look-up", "loop")), strict=True)
    dispatch = [layer - bare - (look_up - loop) for layer, bare, look_up, loop in rows]
    return {
        "m": m,
        "dtype": str(dtype).removeprefix("torch."),
        "rounds": len(taken["layer"]),
        "foul_rounds": foul_rounds,
        "us": us,
        "dispatch_us": statistics.median(dispatch),
        "dispatch_least_us": min(taken["layer"]) - min(taken["bare"]) - us["look-up"] + us["loop"],
        "samples_us": {name: [round(us, 4) for us in side] for name, side in taken.items()},
    }


def _sample(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - start) / 1e3 / CALLS


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the comparison on one CPU and prints it, or writes it to --out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=401)
    parser.add_argument("--cpu", type=int, help="the CPU to stay on; else the last one allowed")
    parser.add_argument("--out", type=Path, help="file for the JSON; else it is printed")
    found = parser.parse_args(arguments)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0)) if found.cpu is None else found.cpu})
    device = serving_device(1)
    report = {
        "benchmark": "dispatch",
        "n": N,
        "k": K,
        "calls_per_sample": CALLS,
        "provenance": provenance(device),
        "results": [run(m, dtype, found.rounds) for m in (1, 4) for dtype in _DTYPES],
    }
    for row in report["results"]:
        costs = ", ".join(f"{name} {us:.2f}" for name, us in row["us"].items())
        sys.stderr.write(
            f"m={row['m']} {row['dtype']}: dispatch {row['dispatch_us']:.2f} us ({costs})\n"
        )
    text = json.dumps(report, indent=1) + "\n"
    if found.out is None:
        sys.stdout.write(text)
    else:
        found.out.write_text(text, "utf-8")


_DTYPES = (torch.float32, torch.bfloat16)

if __name__ == "__main__":
    main()
