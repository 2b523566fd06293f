"""LayerSpec: what the op's string says of a layer. What its calls may be is operands.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import torch

from humming.errors import LayoutError
from humming.quantize.experts import PackedExperts
from humming.quantize.layout import PackedWeight
from humming.quantize.tensor import SCALE_DTYPES
from humming.spec.canonical import canonical_json
from humming.spec.layouts import LAYOUTS
from humming.spec.naming import did_you_mean
from humming.state import ACTIVATIONS

SCALE_DTYPE_OF = {name: dtype for dtype, name in SCALE_DTYPES.items()}


@dataclass(frozen=True)
class LayerSpec:
    """What the op's string says: a packed weight without its tensors, and the table that serves it.

    `x_dtype` is the type that x must have, where the scales have it; `act_order` tells of a
    permutation. `table` is the path of a generation file; None for whichever is current when the
    layer binds.
    """

    format: str
    n: int
    k: int
    layout: str
    scale_dtype: str
    x_dtype: str | None = None
    act_order: bool = False
    table: str | None = None

    @property
    def text(self) -> str:
        """Canonical JSON: the op's `layer` argument."""
        return _text(self)

    def weight(
        self,
        codes: torch.Tensor,
        scales: torch.Tensor,
        zero_points: torch.Tensor | None = None,
        row_scales: torch.Tensor | None = None,
        permutation: torch.Tensor | None = None,
        input_scale: torch.Tensor | None = None,
    ) -> PackedWeight:
        """The packed weight of this layer with its tensors."""
        return PackedWeight(
            self.format,
            self.n,
            self.k,
            self.layout,
            codes,
            scales,
            SCALE_DTYPE_OF[self.scale_dtype],
            zero_points,
            row_scales,
            permutation,
            input_scale,
        )

    @staticmethod
    def of(weight: PackedWeight, table: str | None = None) -> LayerSpec:
        """The spec of a packed weight."""
        return LayerSpec(
            weight.format,
            weight.n,
            weight.k,
            weight.layout,
            SCALE_DTYPES[weight.scale_dtype],
            x_dtype_of(weight),
            weight.permutation is not None,
            table,
        )


def x_dtype_of(weight: PackedWeight | PackedExperts) -> str | None:
    """The type of x where it is that of the group scales: on CUDA, but for e8m0, kept as bf16, and
    for those that are fp32 whatever x is."""
    kept = weight.scale_dtype == torch.float8_e8m0fnu or weight.scales.dtype == torch.float32
    return None if kept or not weight.scales.numel() else ACTIVATIONS[weight.scales.dtype]


@lru_cache(maxsize=4096)
def _text(spec: LayerSpec) -> str:
    return canonical_json(spec)


@lru_cache(maxsize=4096)
def parse_layer(layer: str) -> LayerSpec:
    """The spec that `LayerSpec.text` wrote. Raises LayoutError on anything else."""
    try:
        spec = LayerSpec(**json.loads(layer))
    except (ValueError, TypeError) as error:
        raise LayoutError(
            "humming::linear's layer must be a LayerSpec's text, "
            f"but got {layer[:60]!r}; build it with humming.serving.layer_spec.LayerSpec"
        ) from error
    if spec.layout not in LAYOUTS:
        raise LayoutError(
            f"layout must be one of {', '.join(LAYOUTS)}, but got '{spec.layout}'"
            f"{did_you_mean(str(spec.layout), LAYOUTS)}"
        )
    return spec
