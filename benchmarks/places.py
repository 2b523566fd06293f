"""Whether the ratio of two configs hangs on where their operands lie in GPU memory: by opening of
the problem, which draws weights anew, and by deal of x, workspace and output.

python -m benchmarks.places --device cuda:0 --m 16 --openings 8 --out FILE
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch

from benchmarks.provenance import provenance
from humming.jit.cache import CompiledKernel
from humming.jit.detect import find_device
from humming.jit.load import load
from humming.plan import Kernel
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from tuner.measuring.policy import CUDA
from tuner.measuring.samples_cuda import cuda_sample
from tuner.searching.compile_pool import compile_all
from tuner.worker import bench
from tuner.worker.messages import Open

TWO = (
    SkinnyConfig(16, 4, 8, 2, 0, 1, 2, 1, 1, 0, 0),
    SkinnyConfig(16, 4, 4, 2, 2, 4, 2, 2, 1, 0, 0),
)
"""Both served 4096 x 4096 at m = 16 in five of ten tunings, when a race had one place a side."""

ROUNDS = 10
WAYS = ("again", "placed", "shuffled")
"""The same places three times; other ones; the same ones with weights in another order."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=4096)
    parser.add_argument("--k", type=int, default=4096)
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--openings", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    device = find_device(asked.device)
    layout = layout_for(device, "int4g128")
    problem = Problem("int4g128", asked.n, asked.k, asked.m, layout=layout)
    compiled = compile_all(TWO, problem, device)
    found = [cast(Kernel, load(cast(CompiledKernel, kernel), device)) for kernel in compiled]
    opened = Open(problem, asked.m, asked.m + 1)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for opening in range(asked.openings):
            rows += _opened(opening, problem, found, bench.Bench(opened, device))
            print(json.dumps(rows[-3 * len(WAYS) :]), flush=True)
    body = {"provenance": provenance(device), "configs": [str(c) for c in TWO], "rows": rows}
    asked.out.write_text(json.dumps(body, indent=1) + "\n", "utf-8")


def _opened(
    opening: int, problem: Problem, kernels: Sequence[Kernel], opened: bench.Bench
) -> list[dict[str, Any]]:
    """Three races each way. The bench draws places by its policy, here one a walk."""
    opened._policy = replace(CUDA, places=1)
    rows = []
    calls: list[list[Callable[[], object]]] = []
    for way in WAYS:
        for deal in range(3):
            if way == "placed" or not calls:
                calls = [opened._calls(kernel, problem.m) for kernel in kernels]
            if way == "shuffled":
                calls = [random.Random(deal).sample(walk, len(walk)) for walk in calls]
            rows.append({"way": way, "opening": opening, "deal": deal, **_race(calls)})
    return rows


def _race(calls: Sequence[Sequence[Callable[[], object]]]) -> dict[str, float]:
    sides = [cuda_sample(walk, alike=True) for walk in calls]
    taken: list[list[float]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side in random.sample(range(len(sides)), len(sides)):
            taken[side].append(sides[side]())
    first, second = (statistics.median(side) for side in taken)
    ratio = statistics.median(b / a for a, b in zip(*taken, strict=True))
    return {"first_us": round(first, 4), "second_us": round(second, 4), "ratio": round(ratio, 4)}


if __name__ == "__main__":
    main()
