"""How far a format's weights are from the float ones, relative to their size: measured on weights
that lie beside the config, else predicted on Gaussian ones. No times here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from humming.errors import HummingError
from humming.quantize import quantize

ROWS, COLUMNS = 64, 4096
WEIGHTS = 4
"""Of so many weights of a checkpoint, ROWS rows each are quantized."""

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_NOT_LINEAR = ("embed", "lm_head", "norm", "router", "gate.weight", "conv")


@dataclass(frozen=True)
class Sample:
    """Float weights to be quantized, and where they are from."""

    weights: tuple[torch.Tensor, ...]
    source: str


@dataclass(frozen=True)
class WeightError:
    """`relative` is |w' - w| / |w| (roots of sums of squares); None where it cannot be told, and
    `source` then says why."""

    relative: float | None
    source: str


def sample_of(model: Path) -> Sample:
    """Rows of a few float weights beside the config; Gaussian ones where there are none."""
    weights, names = _stored(model)
    if weights:
        return Sample(weights, f"measured on {ROWS} rows of {', '.join(names)}")
    w = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    return Sample((w,), "predicted on Gaussian weights")


def weight_error(sample: Sample, format: str) -> WeightError:
    """The error of quantizing `sample` to `format`."""
    try:
        pairs = [
            (quantize(w.float(), format).dequantize().double(), w.double()) for w in sample.weights
        ]
    except HummingError as error:
        return WeightError(None, " ".join(str(error).split()))
    return WeightError(_relative(pairs), sample.source)


def rounding_error(sample: Sample, dtype: str) -> WeightError:
    """The error of keeping `sample` in a float type."""
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    pairs = [(w.to(kind).double(), w.double()) for w in sample.weights]
    return WeightError(_relative(pairs), sample.source)


def _relative(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
    off = sum(float((rounded - w).square().sum()) for rounded, w in pairs)
    size = sum(float(w.square().sum()) for _, w in pairs)
    return float((off / size) ** 0.5) if size else 0.0


def _stored(model: Path) -> tuple[tuple[torch.Tensor, ...], list[str]]:
    """Up to WEIGHTS float weights of linear layers, spread over the model, and their names; none
    where the files are not there or are not to be read."""
    from humming.checkpoints.tensor_files import TensorFiles  # safetensors, only where files are

    folder = model if model.is_dir() else model.parent
    if not any(folder.glob("*.safetensors")):
        return (), []
    try:
        files = TensorFiles(folder)
        names = [
            name
            for name in files.names
            if name.endswith(".weight") and not any(word in name for word in _NOT_LINEAR)
        ]
        wanted = [
            name
            for name in names[:: max(1, len(names) // (4 * WEIGHTS))]
            if len(files.info(name).shape) == 2 and files.info(name).dtype in _FLOATS
        ][:WEIGHTS]
        return tuple(files.tensor(name)[:ROWS].clone() for name in wanted), wanted
    except HummingError:
        return (), []
