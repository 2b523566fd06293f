"""How far quantized weights are from the float ones, for every kind of format: a JSON file.

    python -m benchmarks.quantization_error --out benchmarks/results/quantization_error.json

The error is `QuantizedTensor.error`, relative Frobenius, on three synthetic weights of fixed seeds.
Where llmcompressor (`pip install --no-deps llmcompressor` beside the extra `oracles`) and hqq are
installed, their searches run on the same weights. The tables of the docs are made of the file by
benchmarks/documents.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from benchmarks.quantization_peers import peers
from humming.quantize.quantizers import METHODS, quantize
from humming.version import __version__

ROWS, COLUMNS = 256, 2048
_SEED = 7

FORMATS = (
    *(f"int{bits}g128" for bits in range(1, 9)),
    *("int4", "int8", "int4g32"),
    *(f"uint{bits}g64zf" for bits in (1, 2, 3, 4, 8)),
    *("uint4g128z", "uint8z"),
    *("fp3e1m1g32", "fp4e2m1g32", "fp5e2m2g64", "fp6e3m2g64", "fp6e2m3g64", "fp7e3m3g64"),
    *("fp8e4m3", "fp8e4m3t", "fp8e4m3b128", "fp8e5m2", "fp8e3m4"),
    *("mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2", "mxint8", "nvfp4"),
)
"""At least one format of each width, kind of code, scope and kind of scale."""


def weights() -> dict[str, torch.Tensor]:
    """fp32 weights [256, 2048]: normal; Student's t of 3 degrees; normal with one number in a
    thousand 30 times as large."""
    draw = torch.Generator().manual_seed(_SEED)
    normal = torch.randn(ROWS, COLUMNS, generator=draw)
    chi = torch.randn(3, ROWS, COLUMNS, generator=draw).square().mean(0).sqrt()
    heavy = torch.randn(ROWS, COLUMNS, generator=draw) / chi
    outliers = torch.randn(ROWS, COLUMNS, generator=draw)
    outliers[torch.rand(ROWS, COLUMNS, generator=draw) < 1e-3] *= 30
    return {"normal": normal, "heavy": heavy, "outliers": outliers}


def measured() -> dict[str, object]:
    """The content of the file."""
    kinds = weights()
    errors = {
        name: {
            kind: {method: round(quantize(w, name, method).error(w), 6) for method in METHODS}
            for kind, w in kinds.items()
        }
        for name in FORMATS
    }
    return {
        "product_version": __version__,
        "torch": torch.__version__.partition("+")[0],
        "shape": [ROWS, COLUMNS],
        "seed": _SEED,
        "errors": errors,
        "peers": peers(kinds),
    }


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.write_text(json.dumps(measured(), indent=1) + "\n")


if __name__ == "__main__":
    main()
