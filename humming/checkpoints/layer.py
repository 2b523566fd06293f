"""CheckpointLayer: one linear layer as a checkpoint stores it, in this project's words. Where its
tensors lie is known to the readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from humming.errors import CheckpointError
from humming.quantize.quantizers import quantize
from humming.quantize.slicing import concat_rows, with_group_size
from humming.quantize.tensor import QuantizedTensor
from humming.spec.formats import QuantFormat


@dataclass(frozen=True, eq=False)
class CheckpointLayer:
    """A weight `[n, k]`, quantized or float, and what goes with it.

    name              the module's name in the checkpoint; of fused modules joined by "+"
    weight            QuantizedTensor, or fp32, bf16 or fp16 [n, k] where no format holds it
    bias              float [n], or None
    activation        how the tool quantizes x, as a format's second half says it: "int8",
                      "fp8e4m3t"; None: it does not
    activation_scale  fp32 [1] of a static activation ("...t"), or None
    dtype             the type in which the model computes
    note              why a quantized weight is given as floats; "" where it is not
    stored            the weight's format in the checkpoint, where a share has smaller groups; or ""
    """

    name: str
    weight: QuantizedTensor | torch.Tensor
    bias: torch.Tensor | None = None
    activation: str | None = None
    activation_scale: torch.Tensor | None = None
    dtype: torch.dtype = torch.bfloat16
    note: str = ""
    stored: str = ""

    @property
    def quantized(self) -> bool:
        """Whether the weight is codes and scales."""
        return isinstance(self.weight, QuantizedTensor)

    @property
    def format(self) -> str:
        """The format's name, with the activation's; of a float weight its type: "bf16"."""
        if not isinstance(self.weight, QuantizedTensor):
            return _FLOATS[self.weight.dtype]
        return self.weight.format + (f"-{self.activation}" if self.activation else "")

    @property
    def shape(self) -> tuple[int, int]:
        """(n, k): out_features, in_features."""
        n, k = self.weight.shape
        return int(n), int(k)

    def dequantized(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """The weight [n, k], computed in float64, then rounded to `dtype`."""
        if isinstance(self.weight, QuantizedTensor):
            return self.weight.dequantize(dtype)
        return self.weight.to(dtype)

    def quantized_weight(self, format: str | None = None) -> QuantizedTensor:
        """The weight as codes and scales, its format that of the weight alone.

        `format` may add an activation ("int8-int8"). A float weight is quantized to `format`;
        without one it is refused, as a codes' weight is for another format: that would lose what
        the checkpoint holds. Raises CheckpointError.
        """
        if isinstance(self.weight, QuantizedTensor):
            return self._in_format(self.weight, format)
        if format is None:
            why = self.note or f"the checkpoint keeps it as {self.format}"
            raise CheckpointError(
                f"{self.name} must be quantized, but {why}; name a format such as "
                f"format='int4g128' to quantize it now"
            )
        return quantize(self.weight, format)

    def _in_format(self, weight: QuantizedTensor, format: str | None) -> QuantizedTensor:
        if format is None:
            return weight
        wanted, stored = QuantFormat.parse(format), self.stored or weight.format
        if wanted.weight.name not in (weight.format, stored):
            raise CheckpointError(
                f"{self.name} must keep the format that it is stored in, {stored}, but got "
                f"format='{format}'; leave it out, or quantize the float model"
            )
        if wanted.activation is None:
            return weight
        format = f"{weight.format}-{wanted.activation.name}"
        if wanted.activation.dynamic:
            return replace(weight, format=format)
        if self.activation_scale is None:
            raise CheckpointError(
                f"{self.name} must be stored with a scale of x for format='{format}', but is not; "
                f"name {wanted.activation.dtype.name} without its 't', which makes one a token"
            )
        scale = self.activation_scale.to(weight.codes.device, torch.float32).reshape(1)
        return replace(weight, format=format, input_scale=scale)

    def rows(self, rank: int, size: int) -> CheckpointLayer:
        """The share of tensor-parallel rank `rank` of `size`, where output features are split."""
        low, high = _share(self.shape[0], rank, size, self.name, "n")
        bias = None if self.bias is None else self.bias[low:high]
        if isinstance(self.weight, QuantizedTensor):
            return replace(self, weight=self.weight.slice_rows(low, high), bias=bias)
        return replace(self, weight=self.weight[low:high], bias=bias)

    def columns(self, rank: int, size: int) -> CheckpointLayer:
        """The share of rank `rank` of `size`, where input features are split. Ranks' results are
        added, so rank 0 alone has the bias. Where a share is no whole number of groups, all ranks
        have the smaller groups that fit it (but for act-order, whose groups lie as they lie)."""
        low, high = _share(self.shape[1], rank, size, self.name, "k")
        bias = self.bias if rank == 0 else None
        if isinstance(self.weight, QuantizedTensor):
            weight = _in_groups_of(self.weight, high - low).slice_columns(low, high)
            stored = self.stored or self.weight.format
            return replace(self, weight=weight, bias=bias, stored=stored)
        return replace(self, weight=self.weight[:, low:high], bias=bias)


_FLOATS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def fused(layers: Sequence[CheckpointLayer]) -> CheckpointLayer:
    """`layers`, which take the same x, as one: rows one under another, scales as they are.

    A part without a bias counts as one with zeros. A static activation scale becomes the largest,
    as engines have one for a fused layer. Raises CheckpointError where the parts cannot be one.
    """
    first = layers[0]
    if len(layers) == 1:
        return first
    name = "+".join(layer.name for layer in layers)
    kinds = {(layer.quantized, layer.activation, layer.shape[1], layer.dtype) for layer in layers}
    if len(kinds) > 1:
        found = ", ".join(f"{layer.name} {layer.format} k={layer.shape[1]}" for layer in layers)
        raise CheckpointError(
            f"layers that are fused must be stored alike, but got {found}; load them one by one"
        )
    scales = [layer.activation_scale for layer in layers if layer.activation_scale is not None]
    return CheckpointLayer(
        name=name,
        weight=_under(layers),
        bias=_biases(layers),
        activation=first.activation,
        activation_scale=torch.stack(scales).amax(dim=0) if scales else None,
        dtype=first.dtype,
        note=first.note,
        stored=first.stored,
    )


def _under(layers: Sequence[CheckpointLayer]) -> QuantizedTensor | torch.Tensor:
    parts = [layer.weight for layer in layers if isinstance(layer.weight, QuantizedTensor)]
    if parts:
        return concat_rows(parts)
    return torch.cat([layer.dequantized(layers[0].dtype) for layer in layers])


def _biases(layers: Sequence[CheckpointLayer]) -> torch.Tensor | None:
    found = [layer.bias for layer in layers if layer.bias is not None]
    if not found:
        return None
    parts = [
        torch.zeros(layer.shape[0], dtype=found[0].dtype) if layer.bias is None else layer.bias
        for layer in layers
    ]
    return torch.cat(parts)


def _in_groups_of(weight: QuantizedTensor, share: int) -> QuantizedTensor:
    """`weight` in groups that divide `share`, so that all ranks' shares have one format."""
    grouped = weight.weight_format.granularity in ("group", "block")
    size = weight.group_size
    if not grouped or weight.permutation is not None or share % size == 0:
        return weight
    return weight if share == weight.shape[1] else with_group_size(weight, math.gcd(size, share))


def _share(size: int, rank: int, ranks: int, name: str, letter: str) -> tuple[int, int]:
    if ranks < 1 or not 0 <= rank < ranks or size % ranks:
        raise CheckpointError(
            f"`{letter} % size == 0` and `0 <= rank < size` must hold, but got "
            f"{letter}={size}, rank={rank}, size={ranks} for {name}; choose another "
            f"tensor-parallel size"
        )
    share = size // ranks
    return rank * share, (rank + 1) * share
