"""PackedLinear: the packed weight of one linear layer, its description, and what was bound to it.

How it is moved, saved and loaded is packed_module.py, how it is called linear.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from humming.modes import keep_told
from humming.packed_module import PackedModule
from humming.plan import Plan
from humming.quantize.layout import LAYER_TENSORS, PackedWeight, unpack
from humming.quantize.numbers import check_around_codes
from humming.quantize.tensor import QuantizedTensor
from humming.serving.layer_spec import LayerSpec
from humming.state import canonical_codes, packed_on_device, repacked, stored_codes
from humming.warm import WarmCall

BUFFERS = {name: f"packed_{name}" for name in LAYER_TENSORS}


class PackedLinear(PackedModule[PackedWeight]):
    """The weight of one linear layer, packed for the device that it is on; see HummingLinear."""

    name: str
    """That which the layer had in the model where `humming.convert` put it."""
    in_features: int
    out_features: int
    spec: LayerSpec
    packed_scales: torch.Tensor
    packed_zero_points: torch.Tensor | None
    packed_row_scales: torch.Tensor | None
    packed_permutation: torch.Tensor | None
    packed_input_scale: torch.Tensor | None
    fields = LAYER_TENSORS

    def __getattr__(self, name: str) -> Any:
        """What nn.Module has; a float weight is asked for in vain, in one sentence."""
        if name == "weight":
            told: str = self.__dict__.get("name", "")
            raise AttributeError(
                f"{told + ' is ' if told else ''}a HummingLinear{' and' if told else ''} keeps no "
                "float weight; use .quantized().dequantize(), or leave the layer as it is with "
                f"humming.convert(model, skip=[{repr(told) if told else '...'}, ...])"
            )
        return super().__getattr__(name)

    def quantized(self) -> QuantizedTensor:
        """The weight in canonical form."""
        return unpack(self._packed())

    def _fill(self, packed: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        self.in_features, self.out_features = packed.k, packed.n
        super()._fill(packed, bias, dtype)

    def _describe(self, weight: PackedWeight) -> None:
        table = self.spec.table if "spec" in self.__dict__ else None
        self.spec = LayerSpec.of(weight, table)
        self._forget()
        keep_told(self)

    def _forget(self) -> None:
        """Derives anew what hangs on the buffers and the spec."""
        self.layer_text = self.spec.text
        self._plans: dict[tuple[torch.dtype, int], Plan] = {}
        self._warm: dict[tuple[torch.Size, torch.dtype, int], WarmCall] = {}

    def _packed(self) -> PackedWeight:
        return self.spec.weight(*(getattr(self, buffer) for buffer in BUFFERS.values()))

    def _repacked(self, weight: PackedWeight, dtype: torch.dtype) -> PackedWeight:
        return repacked(weight, dtype)

    def _canonical(self) -> dict[str, torch.Tensor]:
        weight = self.quantized()
        return {**weight.tensors, "codes": stored_codes(weight)}

    def _read(self, stored: Mapping[str, torch.Tensor]) -> PackedWeight:
        format, others = self.spec.format, dict(stored)
        codes = canonical_codes(others.pop("codes"), format, self.out_features, self.in_features)
        weight = QuantizedTensor(format, codes, **others)
        check_around_codes(weight)
        return packed_on_device(weight, self.dtype)

    def _bias_shape(self) -> tuple[int, ...]:
        return (self.out_features,)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: bound kernels."""
        return {**self.__dict__, "_plans": {}, "_warm": {}}
