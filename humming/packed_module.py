"""PackedModule: a torch module whose weight, or the weights of all its experts, is kept packed: its
state, moved, saved and loaded.

What is one linear layer's own is packed_linear.py, that of experts moe/stack.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from humming.errors import HummingError, LayoutError
from humming.quantize.experts import PackedExperts
from humming.quantize.layout import PackedWeight
from humming.serving.operands import check_bias
from humming.spec.formats import QuantFormat
from humming.state import ACTIVATIONS, format_tensor, moved, other_format, wait_until_written

CANONICAL = ("scales", "zero_points", "global_scales", "permutation", "input_scale")
"""Keys of a state_dict, beside `codes` and `bias`; those that the weight has."""

Packed = TypeVar("Packed", PackedWeight, PackedExperts)


class PackedModule(nn.Module, Generic[Packed]):
    """What is packed for the device that it is on, and a bias beside it, kept as fp32."""

    spec: Any
    dtype: torch.dtype
    bias_dtype: torch.dtype
    packed_codes: torch.Tensor
    bias: torch.Tensor | None
    fields: tuple[str, ...]
    """The tensors of `Packed`, each kept as a buffer called packed_ and its name."""

    def _packed(self) -> Packed:
        """What kernels read."""
        raise NotImplementedError

    def _repacked(self, weight: Packed, dtype: torch.dtype) -> Packed:
        """`weight` as its device and a module of `dtype` want it; itself where it is so."""
        raise NotImplementedError

    def _canonical(self) -> dict[str, torch.Tensor]:
        """`codes` and those of CANONICAL that there are, as a state_dict has them."""
        raise NotImplementedError

    def _read(self, stored: Mapping[str, torch.Tensor]) -> Packed:
        """The inverse, packed for the device of `stored`. Raises LayoutError on what does not
        fit or is damaged."""
        raise NotImplementedError

    def _describe(self, weight: Packed) -> None:
        """Sets `spec`, and what hangs on it."""
        raise NotImplementedError

    def _bias_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    def _fill(self, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes the weight over as this module's whole state."""
        self.bias_dtype = dtype if bias is None else bias.dtype
        for name in (*(f"packed_{field}" for field in self.fields), "bias"):
            self.register_buffer(name, None, persistent=False)
        self._settle(packed, bias, dtype)

    def _settle(self, packed: Packed, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        """Takes over what is packed for its device, and a bias that it shares with nobody."""
        if bias is not None:
            bias = bias.detach().to(torch.float32, copy=True).contiguous()
        wait_until_written(packed.codes)
        for name in self.fields:
            setattr(self, f"packed_{name}", getattr(packed, name))
        self.bias = bias
        for tensor in self._buffers.values():
            if tensor is not None:
                _keep_static(tensor)
        self.dtype = dtype
        self._describe(packed)

    def _apply(
        self,
        fn: Callable[[torch.Tensor], torch.Tensor],
        recurse: bool = True,  # noqa: ARG002  (torch names it)
    ) -> Any:
        """Moves and repacks the weight, and rounds what the new type or device rounds."""
        packed = self._packed()
        parts = {name: moved(fn, tensor) for name, tensor in packed.tensors.items()}
        if self.packed_codes.is_meta and not parts["codes"].is_meta:
            for part in parts.values():
                part.zero_()  # to_empty: whatever lies there need not be a scale
        dtype = self._after(fn, self.dtype)
        weight = self._repacked(packed.with_tensors(parts), dtype)
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
        for key, tensor in self._canonical().items():
            destination[prefix + key] = tensor
            if key == "codes":
                destination[prefix + "format"] = format_tensor(self.spec.format)
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
        wanted: list[str]
        known: list[str]
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
        """Keys that a state_dict of this module must have, and those that it may have."""
        form = QuantFormat.parse(self.spec.format).weight
        zeros, second = form.zero_point is not None, form.second_scale
        asked: dict[str, bool] = {"zero_points": zeros, "global_scales": second}
        asked["bias"] = self.bias is not None
        asked["input_scale"] = self._buffers.get("packed_input_scale") is not None
        must = ["codes", "scales", *(key for key, needed in asked.items() if needed)]
        free = [key for key in ("global_scales", "permutation") if key not in must]
        return must, must + free

    def _take(self, found: dict[str, torch.Tensor]) -> None:
        """Repacks from canonical tensors; what is not in `found` stays. A module on meta goes where
        its codes are."""
        device, weight, bias = self.packed_codes.device, self._packed(), self.bias
        if {*self._keys()[0]} - {"bias"} <= found.keys():
            if device.type == "meta":
                device = found["codes"].device
            named = ("codes", *CANONICAL)
            weight = self._read({key: found[key].to(device) for key in named if key in found})
        if "bias" in found:
            check_bias(found["bias"], *self._bias_shape())
            bias = found["bias"].to(device)
            self.bias_dtype = bias.dtype
        self._settle(weight, bias, self.dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.table and not Path(self.spec.table).exists():
            self.spec = replace(self.spec, table=None)  # pickled on another machine
        # Loading may have put the tensors on another device than they were saved on.
        self._settle(self._repacked(self._packed(), self.dtype), self.bias, self.dtype)


def _keep_static(tensor: torch.Tensor) -> None:
    """Has torch.compile take the sizes of `tensor` for constants: where a number of rows happens
    to be one of them, both would be the same symbol, and other rows another compilation. As
    torch._dynamo.mark_static, which takes seconds to import."""
    tensor._dynamo_static_indices = set(range(tensor.dim()))  # type: ignore[attr-defined]
