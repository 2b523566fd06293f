"""`python -m benchmarks.cpu`: our served layer against torch's kernels on this CPU.

The layer is tuned first, by our own tuner from an empty database, never by hand; then it is called
as a user calls it. All sides are measured in rounds, in random order within a round, each walking
through so many distinct copies of its weight that the last-level cache stays cold. The policy is
tuner/measuring/samples.py's, the intervals are tuner/promoting/verdict.py's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import provenance
from benchmarks.sides import Side, errors, make_sides
from benchmarks.tuned import FORMATS, TunedLayer, tune_layer
from humming.errors import HummingError
from humming.jit.identity import serving_device
from humming.quantize.quantizers import quantize
from humming.quantize.tensor import QuantizedTensor
from humming.spec.config import config_to_dict
from tuner.measuring.policy import CPU
from tuner.measuring.samples import paired_us
from tuner.measuring.samples_cpu import cpu_sample
from tuner.planning.budget import parse_duration
from tuner.promoting.verdict import paired_ratio

MIN_ROUNDS = 5


def run(
    shapes: Sequence[tuple[int, int]],
    formats: Sequence[str],
    m_values: tuple[int, ...],
    threads: int,
    seconds: float,
    rounds: int,
    seed: int = 0,
) -> dict[str, Any]:
    """The whole comparison as plain JSON; `seconds` is the tuning budget of each shape and m."""
    torch.set_num_threads(threads)
    device = serving_device(threads)
    started = provenance(device)
    results: list[dict[str, Any]] = []
    for format, (n, k) in itertools.product(formats, shapes):
        w = torch.randn(n, k, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
        q = quantize(w, format)
        with tempfile.TemporaryDirectory(prefix="humming-benchmark-") as folder:
            budget = seconds * len(m_values)
            tuned = tune_layer(n, k, format, m_values, device, budget, Path(folder))
            for m in m_values:
                sides = make_sides(q, m, tuned.table, device.cache_bytes, seed + m)
                results.append(_result(q, m, sides, tuned, rounds, seed))
    return {
        "benchmark": "cpu",
        "formats": list(formats),
        "cold_caches": CPU.cold_caches,
        "threads": threads,
        "provenance": {**started, "load_average_after": list(os.getloadavg())},
        "results": results,
    }


def _result(
    q: QuantizedTensor, m: int, sides: list[Side], tuned: TunedLayer, rounds: int, seed: int
) -> dict[str, Any]:
    """One shape and m: tuned config, times, ratios, errors."""
    winner = tuned.winners[m]
    with torch.inference_mode():
        wrong = {side.name: errors(side, q) for side in sides}
        load, preempted = os.getloadavg()[0], _preemptions()
        samples = [cpu_sample(side.calls) for side in sides]
        taken = paired_us(samples, rounds, lambda: math.inf, seed)
    return {
        "format": winner.problem.format,
        "n": winner.problem.n,
        "k": winner.problem.k,
        "m": m,
        "activation_dtype": "bf16",
        "config": config_to_dict(winner.config),
        "config_text": str(winner.config),
        "record": winner.id,
        "table": tuned.table.id,
        "settled": {"reason": tuned.settled[m].reason, "measured": tuned.settled[m].measured},
        "least_bytes": winner.problem.least_bytes,
        "limit_us": winner.limit_us,
        "load_average": load,
        "preemptions": _preemptions() - preempted,
        "rounds": len(taken[0]),
        "sides": {
            side.name: {
                "what": side.what,
                "weights": len(side.calls),
                "us": statistics.median(times),
                "samples_us": times,
                "error": wrong[side.name],
                "times_slower": _ratio(times, taken[0]),
            }
            for side, times in zip(sides, taken, strict=True)
        },
    }


def _preemptions() -> int:
    """How often the scheduler took the CPU from this process: near 0 on an idle machine."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _ratio(side: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """How many times our time a side takes, with a 95 % interval; above 1 where we are faster."""
    interval = paired_ratio(side, ours)
    return {"ratio": interval.ratio, "low": interval.low, "high": interval.high}


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line. Lists of n and k are taken in pairs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--n", default="4096", help="out_features, such as 4096,6144")
    parser.add_argument("--k", default="4096", help="in_features, one for each n")
    parser.add_argument("--format", default="int4g128", help=f"a list of {', '.join(FORMATS)}")
    parser.add_argument("--m", default="1", help="token counts, such as 1,16,256")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", default="60s", help="tuning time of each shape and m")
    parser.add_argument("--rounds", type=int, default=21, help=f"at least {MIN_ROUNDS}")
    parser.add_argument("--out", type=Path, help="file for the JSON; else it is printed")
    found = parser.parse_args(arguments)
    try:
        ns, ks, ms = (tuple(map(int, text.split(","))) for text in (found.n, found.k, found.m))
        found.seconds = parse_duration(found.budget)
    except (ValueError, HummingError) as error:
        parser.error(str(error))
    if len(ns) != len(ks) or min((*ns, *ks, *ms, found.threads)) < 1 or found.rounds < MIN_ROUNDS:
        parser.error(
            "`len(n) == len(k)`, `n, k, m, threads >= 1` and "
            f"`rounds >= {MIN_ROUNDS}` must hold, but got n={found.n}, k={found.k}, m={found.m}, "
            f"threads={found.threads}, rounds={found.rounds}"
        )
    found.formats = found.format.split(",")
    for format in found.formats:
        if format not in FORMATS:
            parser.error(f"--format must be of {', '.join(FORMATS)}, but got '{format}'")
    found.shapes, found.m_values = tuple(zip(ns, ks, strict=True)), ms
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; exit code 0, or 2 where the input cannot be used."""
    found = parse_arguments(arguments)
    try:
        report = run(
            found.shapes, found.formats, found.m_values, found.threads, found.seconds, found.rounds
        )
    except HummingError as error:
        print(f"benchmarks.cpu: {error}", file=sys.stderr)
        return error.exit_code
    text = json.dumps(report, indent=1) + "\n"
    if found.out is None:
        print(text, end="")
    else:
        found.out.parent.mkdir(parents=True, exist_ok=True)
        found.out.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
