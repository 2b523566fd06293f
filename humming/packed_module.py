"""PackedModule: a torch module whose weight is kept packed: its state, moved, saved and loaded.

How it is called is linear.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.errors import HummingError, LayoutError
from humming.modes import keep_told
from humming.plan import Plan
from humming.quantize.layout import LAYER_TENSORS, PackedWeight, unpack
from humming.quantize.tensor import QuantizedTensor
from humming.serving.layer_spec import LayerSpec
from humming.serving.operands import check_bias
from humming.spec.formats import QuantFormat
from humming.state import (
    ACTIVATIONS,
    canonical_codes,
    format_tensor,
    moved,
    other_format,
    packed_on_device,
    repacked,
    stored_codes,
    wait_until_written,
)
from humming.warm import WarmCall

BUFFERS = {name: f"packed_{name}" for name in LAYER_TENSORS}
_CANONICAL = ("scales", "zero_points", "global_scales", "permutation", "input_scale")
"""Keys of a state_dict, beside `codes` and `bias`; those that the weight has."""


class PackedModule(nn.Module):
    """The weight of one linear layer, packed for the device that it is on; see HummingLinear."""

    in_features: int
    out_features: int
    dtype: torch.dtype
    bias_dtype: torch.dtype
    spec: LayerSpec
    packed_codes: torch.Tensor
    packed_scales: torch.Tensor
    packed_zero_points: torch.Tensor | None
    packed_row_scales: torch.Tensor | None
    packed_permutation: torch.Tensor | None
    packed_input_scale: torch.Tensor | None
    bias: torch.Tensor | None

    def __getattr__(self, name: str) -> Any:
        """What nn.Module has; a float weight is asked for in vain, in one sentence."""
        if name == "weight":
            raise AttributeError(
                "a HummingLinear keeps no float weight; use .quantized().dequantize(), or leave "
                "the layer as it is with humming.convert(model, skip=[...])"
            )
        return super().__getattr__(name)

    def quantized(self) -> QuantizedTensor:
        """The weight in canonical form."""
        return unpack(self._packed())

    def _fill(self, packed: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes the weight over as this layer's whole state."""
        self.in_features, self.out_features = packed.k, packed.n
        self.bias_dtype = dtype if bias is None else bias.dtype
        for name in (*BUFFERS.values(), "bias"):
            self.register_buffer(name, None, persistent=False)
        self._settle(packed, bias, dtype)

    def _settle(self, packed: PackedWeight, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes over a weight packed for its device, and a bias that it shares with nobody."""
        table = self.spec.table if "spec" in self.__dict__ else None
        if bias is not None:
            bias = bias.detach().to(torch.float32, copy=True).contiguous()
        wait_until_written(packed.codes)
        for name, buffer in BUFFERS.items():
            setattr(self, buffer, getattr(packed, name))
        self.bias = bias
        for tensor in self._buffers.values():
            if tensor is not None:
                _keep_static(tensor)
        self.dtype, self.spec = dtype, LayerSpec.of(packed, table)
        self._forget()
        keep_told(self)

    def _forget(self) -> None:
        """Derives anew what hangs on the buffers and the spec."""
        self.layer_text = self.spec.text
        self._plans: dict[tuple[torch.dtype, int], Plan] = {}
        self._warm: dict[tuple[torch.Size, torch.dtype, int], WarmCall] = {}

    def _packed(self) -> PackedWeight:
        return self.spec.weight(*(getattr(self, buffer) for buffer in BUFFERS.values()))

    def _apply(
        self,
        fn: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,  # noqa: ARG002  (torch names it)
    ) -> Any:
        """Moves and repacks the weight, and rounds what the new type or device rounds."""
        parts = {name: moved(fn, tensor) for name, tensor in self._packed().tensors.items()}
        if self.packed_codes.is_meta and not parts["codes"].is_meta:
            for part in parts.values():
                part.zero_()  # to_empty: whatever lies there need not be a scale
        dtype = self._after(fn, self.dtype)
        weight = repacked(self.spec.weight(**parts), dtype)
        if (bias := self.bias) is not None:
            self.bias_dtype = self._after(fn, self.bias_dtype)
            bias = moved(fn, bias).to(self.bias_dtype)
        self._settle(weight, bias, dtype)
        return self

    def _after(self, fn: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> torch.dtype:
        """The type into which `fn` converts `dtype`, where a layer can be of it."""
        new = fn(torch.empty(0, dtype=dtype, device=self.packed_codes.device)).dtype
        return new if new in ACTIVATIONS else dtype

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight = self.quantized()
        destination[prefix + "codes"] = stored_codes(weight)
        destination[prefix + "format"] = format_tensor(weight.format)
        for key in _CANONICAL:
            if key in weight.tensors:
                destination[prefix + key] = weight.tensors[key]
        if self.bias is not None:
            destination[prefix + "bias"] = self.bias.detach().to(self.bias_dtype)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # Nothing here is persistent to torch, so this only runs the hooks that users registered.
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs
        )
        wanted, known = self._keys()
        mismatch = other_format(state_dict.get(prefix + "format"), self.spec.format)
        found = {key: state_dict[prefix + key] for key in known if prefix + key in state_dict}
        if strict:
            missing_keys += [prefix + key for key in wanted if key not in found]
            names = [key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)]
            unexpected_keys += [prefix + name for name in names if name not in (*known, "format")]
        try:
            if mismatch:
                raise LayoutError(mismatch)
            self._take(found)
        except HummingError as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'layer'}: {error}")

    def _keys(self) -> tuple[list[str], list[str]]:
        """Keys that a state_dict of this layer must have, and those that it may have."""
        form = QuantFormat.parse(self.spec.format).weight
        zeros, second = form.zero_point is not None, form.second_scale
        asked = {"zero_points": zeros, "global_scales": second, "bias": self.bias is not None}
        asked["input_scale"] = self.packed_input_scale is not None
        must = ["codes", "scales", *(key for key, needed in asked.items() if needed)]
        free = [key for key in ("global_scales", "permutation") if key not in must]
        return must, must + free

    def _take(self, found: dict[str, torch.Tensor]) -> None:
        """Repacks from canonical tensors; what is not in `found` stays."""
        device = self.packed_codes.device
        if device.type == "meta" and "codes" in found:
            device = found["codes"].device
        weight, bias = self._packed(), self.bias
        format, n, k = self.spec.format, self.out_features, self.in_features
        if {*self._keys()[0]} - {"bias"} <= found.keys():
            codes = canonical_codes(found["codes"].to(device), format, n, k)
            others = {key: found[key].to(device) for key in _CANONICAL if key in found}
            weight = packed_on_device(QuantizedTensor(format, codes, **others), self.dtype)
        if "bias" in found:
            check_bias(found["bias"], self.out_features)
            bias = found["bias"].to(device)
            self.bias_dtype = bias.dtype
        self._settle(weight, bias, self.dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Without what belongs to this process: bound kernels."""
        return {**self.__dict__, "_plans": {}, "_warm": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.table and not Path(self.spec.table).exists():
            self.spec = replace(self.spec, table=None)  # pickled on another machine
        # Loading may have put the tensors on another device than they were saved on.
        self._settle(repacked(self._packed(), self.dtype), self.bias, self.dtype)


def _keep_static(tensor: torch.Tensor) -> None:
    """Has torch.compile take the sizes of `tensor` for constants: where a number of rows happens
    to be one of them, both would be the same symbol, and other rows another compilation. As
    torch._dynamo.mark_static, which takes seconds to import."""
    tensor._dynamo_static_indices = set(range(tensor.dim()))  # type: ignore[attr-defined]
