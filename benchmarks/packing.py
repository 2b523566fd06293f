"""How long quantizing and packing take, in seconds of processor time on one thread: a JSON file.

    python -m benchmarks.packing --out benchmarks/results/packing.json

One weight of 4096 x 14336 in each width. Processor time, so that a busy machine counts for little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from humming.quantize import pack, quantize, unpack
from humming.spec.layouts import LAYOUTS

ROWS, COLUMNS = 4096, 14336
FORMATS = (*(f"int{bits}g128" for bits in range(1, 9)), "uint4g64zf", "fp8e4m3", "mxfp4", "nvfp4")
_SEED = 7


def measured() -> dict[str, object]:
    """Format -> what is done -> seconds."""
    torch.set_num_threads(1)
    draw = torch.Generator().manual_seed(_SEED)
    w = torch.randn(ROWS, COLUMNS, generator=draw).to(torch.bfloat16)
    seconds: dict[str, dict[str, float]] = {}
    for name in FORMATS:
        q, plain = _timed(lambda name=name: quantize(w, name))
        _, searched = _timed(lambda name=name: quantize(w, name, "mse"))
        seconds[name] = {"absmax": plain, "mse": searched}
        for layout in LAYOUTS:
            packed, took = _timed(lambda q=q, layout=layout: pack(q, layout))
            _, back = _timed(lambda packed=packed: unpack(packed))
            seconds[name] |= {f"pack {layout}": took, f"unpack {layout}": back}
    return seconds


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    made = call()
    return made, round(time.process_time() - begin, 3)


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    report = {
        "torch": torch.__version__.partition("+")[0],
        "shape": [ROWS, COLUMNS],
        "seconds": measured(),
    }
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
