"""ExpertStack: one projection of all experts as a module, its weights kept packed: moved, saved,
loaded. What is made of two of them is experts.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.errors import HummingError, LayoutError
from humming.moe.gemm import spec_of
from humming.moe.op import refuse_gradients, run, through_op
from humming.moe.plan import ExpertsPlan, ExpertsSpec, bind_experts, bound_experts
from humming.moe.router import check_top_k
from humming.moe.rows import Rows
from humming.plan import place_of
from humming.quantize.experts import PackedExperts, pack_experts, unpack_experts
from humming.quantize.layout import TENSORS
from humming.quantize.tensor import SCALE_DTYPES, QuantizedTensor, check_tensor
from humming.spec.routing import UNIFORM
from humming.state import (
    ACTIVATIONS,
    canonical_codes,
    format_tensor,
    in_layer_type,
    layout_on,
    moved,
    other_format,
    packed_dtype,
    stored_codes,
    wait_until_written,
)

_BUFFERS = {name: f"packed_{name}" for name in TENSORS}
_CANONICAL = ("scales", "zero_points", "global_scales", "permutation")
_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}


class ExpertStack(nn.Module):
    """`w[experts, n, k]` and maybe `bias[experts, n]`; `forward` multiplies rows by their experts.

    `state_dict` holds the canonical form, one expert after another: `codes` uint8 [experts, n, ..],
    `scales` and the others as a QuantizedTensor has them with `experts` in front, `format`, `bias`.
    `top_k`, where it is told, is what tables are looked up by before the first call.
    """

    spec: ExpertsSpec
    bias: torch.Tensor | None
    packed_codes: torch.Tensor

    def __init__(
        self,
        weight: PackedExperts,
        bias: torch.Tensor | None = None,
        dtype: torch.dtype = torch.bfloat16,
        top_k: int | None = None,
    ) -> None:
        super().__init__()
        if top_k is not None:
            check_top_k(top_k)
        if bias is not None:
            check_tensor(bias, "bias", "[experts, n]")
        if bias is not None and tuple(bias.shape) != (weight.experts, weight.n):
            raise LayoutError(
                f"bias must be [{weight.experts}, {weight.n}], but got {list(bias.shape)}"
            )
        self.bias_dtype = dtype if bias is None else bias.dtype
        self.told_top_k = top_k
        for name in (*_BUFFERS.values(), "bias"):
            self.register_buffer(name, None, persistent=False)
        self._settle(weight, bias, dtype)

    @classmethod
    def of(
        cls,
        weights: Iterable[QuantizedTensor],
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        top_k: int | None,
        count: int | None = None,
    ) -> ExpertStack:
        """Of canonical weights, which are packed one by one as they come."""
        return cls(packed_for(weights, dtype, count), bias, dtype, top_k)

    def forward(self, x: torch.Tensor, rows: Rows) -> torch.Tensor:
        """[rows, n] of x [rows of x, k]. Raises LayoutError where `x` needs a gradient."""
        self._meet(rows)
        if torch.compiler.is_compiling() or type(x) is not torch.Tensor:
            return through_op(x, self.packed(), self.bias, rows, self.layer_text)
        refuse_gradients(x)
        return run(x, self.packed(), self.bias, rows, self.spec)

    def after_silu(self, projected: torch.Tensor, rows: Rows) -> torch.Tensor | None:
        """[rows, n] of silu(gate) * up, where `projected` [rows, 2k] is gates, then ups: made in
        the launch that quantizes it. None where x is not quantized to codes."""
        self._meet(rows)
        place, biased = place_of(self.packed_codes.device), self.bias is not None
        plan = bound_experts(self.spec, projected.dtype, biased, place)
        if plan.silu_quantizer(rows.tokens) is None:
            return None
        return plan.run_experts(projected, self.packed(), self.bias, rows, silu=True)

    def block_m(self, rows: Rows) -> int:
        """Rows of a tile of the kernel that serves so many tokens here; on a GPU."""
        self._meet(rows)
        place, biased = place_of(self.packed_codes.device), self.bias is not None
        plan = bound_experts(self.spec, self.dtype, biased, place)
        return int(plan.kernel_of(rows.tokens)[1].block_m)

    def _meet(self, rows: Rows) -> None:
        """Tables are looked up by how many experts a token really has."""
        top_k = rows.count // rows.tokens if rows.tokens else self.spec.top_k
        if top_k != self.spec.top_k:
            self._set(replace(self.spec, top_k=top_k))

    def packed(self) -> PackedExperts:
        """The weights as kernels read them."""
        spec, parts = self.spec, {n: getattr(self, b) for n, b in _BUFFERS.items()}
        return PackedExperts(
            spec.format,
            spec.experts,
            spec.n,
            spec.k,
            spec.layout,
            scale_dtype=_DTYPES[spec.scale_dtype],
            **parts,
        )

    def quantized(self) -> list[QuantizedTensor]:
        """The weights in canonical form, one an expert."""
        return unpack_experts(self.packed())

    def prepare(
        self, table: Any = None, m: int | None = None, dtype: torch.dtype | None = None
    ) -> ExpertsPlan:
        """Binds to `table` and compiles the kernels, of all m or the interval that holds `m`."""
        place = place_of(self.packed_codes.device)
        biased = self.bias is not None
        spec, plan = bind_experts(self.spec, dtype or self.dtype, biased, place, table)
        self._set(spec)
        plan.load_all(m)
        return plan

    def take_routing(self, routing: str) -> None:
        """Is looked up in tables by this routing from now on."""
        self._set(replace(self.spec, routing=routing))

    def extra_repr(self) -> str:
        """Shape, format, device."""
        s = self.spec
        return (
            f"experts={s.experts}, in_features={s.k}, out_features={s.n}, format={s.format}, "
            f"layout={s.layout}, device={self.packed_codes.device}, routing={s.routing}"
        )

    def _settle(self, weight: PackedExperts, bias: torch.Tensor | None, dtype: torch.dtype) -> None:
        wait_until_written(weight.codes)
        for name, buffer in _BUFFERS.items():
            setattr(self, buffer, getattr(weight, name))
        self.bias = None if bias is None else bias.detach().to(torch.float32, copy=True)
        self.dtype = dtype
        old = self.__dict__.get("spec")
        top_k, routing = (old.top_k, old.routing) if old else (self.told_top_k or 1, UNIFORM)
        self._set(spec_of(weight, top_k, routing, old.table if old else None))

    def _set(self, spec: ExpertsSpec) -> None:
        self.spec, self.layer_text = spec, spec.text

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:  # noqa: ARG002
        """Moves the weights, and packs them anew for another kind of device or type."""
        parts = {name: moved(fn, tensor) for name, tensor in self.packed().tensors.items()}
        new = fn(torch.empty(0, dtype=self.dtype, device=self.packed_codes.device)).dtype
        dtype = new if new in ACTIVATIONS else self.dtype
        weight, device = self.packed().with_tensors(parts), parts["codes"].device
        layout = layout_on(device, weight.format, "moe", weight.permutation is not None)
        wanted = packed_dtype(layout, weight.format, dtype)
        if weight.layout != layout or weight.scales.dtype != wanted:
            weight = packed_for(unpack_experts(weight), dtype)
        bias = None if self.bias is None else moved(fn, self.bias)
        self._settle(weight, bias, dtype)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        whole = unpack_experts(self.packed())
        destination[prefix + "codes"] = torch.stack([stored_codes(q) for q in whole])
        destination[prefix + "format"] = format_tensor(self.spec.format)
        for key in _CANONICAL:
            if key in whole[0].tensors:
                parts = [q.tensors[key] for q in whole]
                most = max(part.shape[0] for part in parts)
                same = [p.expand(most) if key == "global_scales" else p for p in parts]
                destination[prefix + key] = _stacked(same)
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
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, False, missing_keys, unexpected_keys, error_msgs
        )
        form = unpack_experts(self.packed().slice(0, 1))[0]
        wanted = ["codes", *(key for key in _CANONICAL if key in form.tensors)]
        wanted += ["bias"] if self.bias is not None else []
        names = [key.removeprefix(prefix) for key in state_dict if key.startswith(prefix)]
        if strict:
            missing_keys += [prefix + key for key in wanted if key not in names]
            known = (*wanted, *_CANONICAL, "format")
            unexpected_keys += [prefix + name for name in names if name not in known]
        mismatch = other_format(state_dict.get(prefix + "format"), self.spec.format)
        try:
            if mismatch:
                raise LayoutError(mismatch)
            if set(wanted) <= set(names):
                self._take({key: state_dict[prefix + key] for key in names})
        except HummingError as error:
            error_msgs.append(f"{prefix.rstrip('.') or 'experts'}: {error}")

    def _take(self, found: dict[str, torch.Tensor]) -> None:
        """Packs canonical tensors."""
        spec, device = self.spec, self.packed_codes.device
        if len(found["codes"]) != spec.experts:
            raise LayoutError(
                f"codes must be those of {spec.experts} experts, but got {len(found['codes'])}"
            )

        def one(expert: int) -> QuantizedTensor:
            codes = canonical_codes(found["codes"][expert].to(device), spec.format, spec.n, spec.k)
            others = {key: found[key][expert].to(device) for key in _CANONICAL if key in found}
            return QuantizedTensor(spec.format, codes, **others)

        every = (one(expert) for expert in range(spec.experts))
        bias = found.get("bias")
        packed = packed_for(every, self.dtype, spec.experts)
        self._settle(packed, None if bias is None else bias.to(device), self.dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self.spec.table and not Path(self.spec.table).exists():
            self.spec = replace(self.spec, table=None)  # pickled on another machine


def _stacked(parts: list[torch.Tensor]) -> torch.Tensor:
    """One after another; 8-bit floats as bytes, as torch cannot stack them everywhere."""
    if parts[0].element_size() == 1:
        return torch.stack([part.view(torch.uint8) for part in parts]).view(parts[0].dtype)
    return torch.stack(parts)


def packed_for(
    weights: Iterable[QuantizedTensor], dtype: torch.dtype, count: int | None = None
) -> PackedExperts:
    """`weights` packed for the device that they are on and a layer of `dtype`, as they come."""
    if count is None:
        weights = list(weights)
        count = len(weights)
    every = iter(weights)
    first = next(every, None)
    if first is None:
        raise LayoutError("a stack of experts needs one expert at least, but got none")
    order = first.permutation is not None
    layout = layout_on(first.codes.device, first.format, "moe", order)
    rounded = (in_layer_type(q, layout, dtype) for q in chain([first], every))
    return pack_experts(rounded, layout, dtype, count)
