"""The command inspect: what a checkpoint stores of each linear layer, from headers alone where
those suffice. How formats are read is known to humming/checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import humming.checkpoints
from humming.checkpoints import Checkpoint, CheckpointLayer
from humming.checkpoints.tensor_files import TensorFiles
from humming.errors import HummingError
from humming.quantize.tensor import QuantizedTensor, describe
from tuner.inspecting.reasons import reason

_OUTSIDE = ("bias", "input_scale", "activation_scale")


@dataclass(frozen=True)
class LayerRow:
    """A quantized layer. `scales` and `zero_points` read "fp16 [n, groups]"; `bits` are those of a
    weight with its share of scales, zero points and order."""

    name: str
    format: str
    n: int
    k: int
    scales: str
    zero_points: str
    act_order: bool
    bias: bool
    bits: float


@dataclass(frozen=True)
class FloatRow:
    """A layer that the checkpoint holds as floats, and why."""

    name: str
    dtype: str
    n: int
    k: int
    why: str


@dataclass(frozen=True)
class RefusedRow:
    """A layer that cannot be read, and why."""

    name: str
    why: str


@dataclass(frozen=True)
class Inspection:
    """What `inspect` found. `tool` is the format's name, or None where nothing is quantized; `read`
    is the number of layers whose headers did not suffice; `file_bytes` are those of all tensors.
    """

    model: str
    tool: str | None
    layers: tuple[LayerRow, ...]
    unquantized: tuple[FloatRow, ...]
    refused: tuple[RefusedRow, ...]
    read: int
    file_bytes: int

    @cached_property
    def totals(self) -> dict[str, Any]:
        """Sums over all layers; bits are of the quantized ones."""
        weights = sum(row.n * row.k for row in self.layers)
        bits = sum(row.bits * row.n * row.k for row in self.layers)
        return {
            "layers": len(self.layers),
            "weights": weights,
            "bytes": round(bits / 8),
            "bits_per_weight": round(bits / weights, 4) if weights else None,
            "formats": dict(Counter(row.format for row in self.layers)),
            "unquantized_layers": len(self.unquantized),
            "unquantized_weights": sum(row.n * row.k for row in self.unquantized),
            "refused_layers": len(self.refused),
            "layers_read": self.read,
            "file_bytes": self.file_bytes,
        }


def inspect(path: Path) -> Inspection:
    """The layers of the checkpoint in the folder `path`.

    Raises ModelError or CheckpointError, one sentence, where it cannot be opened; a layer that
    cannot be read is a row of `refused`.
    """
    headers = humming.checkpoints.open(path, headers_only=True)
    describer = _Describer(headers, lambda: humming.checkpoints.open(path))
    layers: list[LayerRow] = []
    unquantized: list[FloatRow] = []
    refused: list[RefusedRow] = []
    for name in sorted(headers.names, key=_in_order):
        try:
            layer = describer.layer(name)
        except HummingError as error:
            refused.append(RefusedRow(name, str(error)))
            continue
        if isinstance(layer.weight, QuantizedTensor):
            layers.append(_row(layer, layer.weight))
        else:
            n, k = layer.shape
            why = layer.note or reason(headers, name)
            unquantized.append(FloatRow(name, layer.format, n, k, why))
    return Inspection(
        model=headers.path.resolve().name,
        tool=None if headers.reader is None else headers.reader.title,
        layers=tuple(layers),
        unquantized=tuple(unquantized),
        refused=tuple(refused),
        read=describer.read,
        file_bytes=sum(_bytes(headers.files)),
    )


def to_json(found: Inspection) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "model": found.model,
        "tool": found.tool,
        "layers": [{**asdict(row), "bits": round(row.bits, 4)} for row in found.layers],
        "unquantized": [asdict(row) for row in found.unquantized],
        "refused": [asdict(row) for row in found.refused],
        "totals": found.totals,
    }


def _in_order(name: str) -> list[tuple[bool, int, str]]:
    """Layer 2 before layer 10."""
    steps = name.split(".")
    return [(not s.isdecimal(), int(s) if s.isdecimal() else 0, s) for s in steps]


class _Describer:
    """Layers from headers, and from the numbers in the file where a reader asks for one. `read`
    counts the latter."""

    def __init__(self, headers: Checkpoint, opened: Callable[[], Checkpoint]) -> None:
        self._headers, self._opened = headers, opened
        self.read = 0

    @cached_property
    def _whole(self) -> Checkpoint:
        return self._opened()

    def layer(self, name: str) -> CheckpointLayer:
        try:
            return self._headers.layer(name)
        except HummingError:
            raise
        except RuntimeError:  # torch's answer to whoever asks a meta tensor for a number
            self.read += 1
            return self._whole.layer(name)


def _row(layer: CheckpointLayer, weight: QuantizedTensor) -> LayerRow:
    n, k = layer.shape
    zeros = weight.zero_points
    return LayerRow(
        name=layer.name,
        format=layer.format,
        n=n,
        k=k,
        scales=describe(weight.scales),
        zero_points="" if zeros is None else describe(zeros),
        act_order=weight.permutation is not None,
        bias=layer.bias is not None,
        bits=_bits(weight) / (n * k),
    )


def _bits(weight: QuantizedTensor) -> int:
    """Of codes, scales, zero points and order, each as small as its type."""
    bits = weight.weight_format.dtype.bits
    total = bits * weight.codes.numel()
    for field, tensor in weight.tensors.items():
        if field == "zero_points" and weight.weight_format.zero_point == "int":
            total += bits * tensor.numel()
        elif field != "codes":
            total += 8 * tensor.element_size() * tensor.numel()
    return total


def _bytes(files: TensorFiles) -> Iterator[int]:
    for name in files.names:
        info = files.info(name)
        elements = 1
        for size in info.shape:
            elements *= size
        yield elements * (info.dtype.itemsize if info.dtype is not None else 1)
