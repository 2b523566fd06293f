"""How long kernels take to compile on this machine, into an empty cache: a JSON file.

    python -m benchmarks.compiling --device cuda:0 --out benchmarks/results/h200_compiling.json

`alone` is one kernel after another, each with the whole machine; `layer_s` is what a layer waits
for when it is prepared with nothing cached: all kernels of its intervals, compiled in parallel and
loaded. Nothing is launched, and no speed of kernels is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.provenance import provenance
from humming.dispatch.sources import load_table
from humming.jit.cache import compiled
from humming.jit.detect import find_device
from humming.plan import Plan, place_of
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem

FORMATS = ("int4g128", "mxfp4", "int8", "fp8e4m3")
SHAPE = (8192, 8192)
"""n and k of the layer."""


def measured(name: str, spec: str, table: str | None) -> dict[str, Any]:
    """What a layer of format `name` takes on the device `spec`: kernels alone, and together."""
    device = find_device(spec)
    problem = Problem(
        format=name,
        n=SHAPE[0],
        k=SHAPE[1],
        m=0,
        activation_dtype="bf16",
        output_dtype="bf16",
        layout=layout_for(device, name),
    )
    plan = Plan(problem, place_of(torch.device(spec)), load_table(table) if table else None)
    with _EmptyCache():
        begin = time.perf_counter()
        plan.load_all()
        together = time.perf_counter() - begin
    configs = {d.config: problem.at(max(d.m_low, 1)) for d in plan.dispatches}
    with _EmptyCache():
        alone = {
            str(config): round(compiled(config, at, device).compile_s, 3)
            for config, at in configs.items()
        }
    return {
        "format": name,
        "kernels": len(configs),
        "layer_s": round(together, 3),
        "alone_s": alone,
        "alone_median_s": statistics.median(alone.values()),
        "alone_most_s": max(alone.values()),
    }


class _EmptyCache:
    """HUMMING_CACHE set to a new folder, removed afterwards."""

    def __enter__(self) -> None:
        self._before = os.environ.get("HUMMING_CACHE")
        self._folder = tempfile.TemporaryDirectory(prefix="humming-")
        os.environ["HUMMING_CACHE"] = self._folder.name

    def __exit__(self, *_: object) -> None:
        del os.environ["HUMMING_CACHE"]
        if self._before is not None:
            os.environ["HUMMING_CACHE"] = self._before
        self._folder.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the file, and prints a line a format."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="cpu or cuda:<index>")
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--table", help="a tuned table's file; by default the heuristic serves")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    report: dict[str, Any] = {"provenance": provenance(find_device(given.device))}
    report |= {"n": SHAPE[0], "k": SHAPE[1], "layers": []}
    for name in given.formats:
        layer = measured(name, given.device, given.table)
        report["layers"].append(layer)
        print(
            f"{name}: {layer['kernels']} kernels, the layer {layer['layer_s']} s, one alone "
            f"{layer['alone_median_s']} s (most {layer['alone_most_s']} s)",
            flush=True,
        )
        given.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
