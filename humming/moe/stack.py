"""ExpertStack: one projection of all experts as a module, its weights kept packed. How they are
moved, saved and loaded is packed_module.py, what is made of two of them experts.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import torch

from humming.errors import LayoutError
from humming.moe.gemm import spec_of
from humming.moe.op import refuse_gradients, run, through_op
from humming.moe.plan import ExpertsPlan, ExpertsSpec, bind_experts, bound_experts
from humming.moe.router import check_top_k
from humming.moe.rows import Rows
from humming.packed_module import CANONICAL, PackedModule
from humming.plan import place_of
from humming.quantize.experts import PackedExperts, pack_experts, unpack_experts
from humming.quantize.layout import TENSORS
from humming.quantize.numbers import check_around_codes
from humming.quantize.tensor import SCALE_DTYPES, QuantizedTensor
from humming.serving.layer_spec import x_dtype_of
from humming.serving.operands import check_bias
from humming.spec.routing import UNIFORM
from humming.state import (
    canonical_codes,
    in_layer_type,
    layout_on,
    packed_dtype,
    stored_codes,
)

_BUFFERS = {name: f"packed_{name}" for name in TENSORS}
_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}


class ExpertStack(PackedModule[PackedExperts]):
    """`w[experts, n, k]` and maybe `bias[experts, n]`; `forward` multiplies rows by their experts.

    `state_dict` holds the canonical form, one expert after another: `codes` uint8 [experts, n, ..],
    `scales` and the others as a QuantizedTensor has them with `experts` in front, `format`, `bias`.
    `top_k`, where it is told, is what tables are looked up by before the first call.
    """

    spec: ExpertsSpec
    x_dtype: str | None
    """The name of the type that x must have; None where it may have any."""
    fields = TENSORS

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
            check_bias(bias, weight.experts, weight.n)
        self.told_top_k = top_k
        self._fill(weight, bias, dtype)

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
        if torch.compiler.is_compiling():  # the op sees by itself how many experts a token has
            return through_op(x, self.packed(), self.bias, rows, self.layer_text)
        self._meet(rows)
        if type(x) is not torch.Tensor:
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
            self._set(self.spec.of_top_k(top_k))

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

    def _packed(self) -> PackedExperts:
        return self.packed()

    def _describe(self, weight: PackedExperts) -> None:
        old = self.__dict__.get("spec")
        top_k, routing = (old.top_k, old.routing) if old else (self.told_top_k or 1, UNIFORM)
        self._set(spec_of(weight, top_k, routing, old.table if old else None))
        self.x_dtype = x_dtype_of(weight)

    def _set(self, spec: ExpertsSpec) -> None:
        self.spec, self.layer_text = spec, spec.text

    def _repacked(self, weight: PackedExperts, dtype: torch.dtype) -> PackedExperts:
        device, ordered = weight.codes.device, weight.permutation is not None
        layout = layout_on(device, weight.format, "moe", ordered)
        if weight.layout == layout and (
            weight.scales.dtype == packed_dtype(layout, weight.format, dtype)
        ):
            return weight
        return packed_for(unpack_experts(weight), dtype)

    def _canonical(self) -> dict[str, torch.Tensor]:
        whole = unpack_experts(self.packed())
        stored = {"codes": torch.stack([stored_codes(q) for q in whole])}
        for key in CANONICAL:
            if key in whole[0].tensors:
                parts = [q.tensors[key] for q in whole]
                most = max(part.shape[0] for part in parts)
                same = [p.expand(most) if key == "global_scales" else p for p in parts]
                stored[key] = _stacked(same)
        return stored

    def _read(self, stored: Mapping[str, torch.Tensor]) -> PackedExperts:
        spec = self.spec
        for key, tensor in stored.items():
            if tensor.ndim < 1 or len(tensor) != spec.experts:
                raise LayoutError(
                    f"{key} must be those of {spec.experts} experts, but got {list(tensor.shape)}"
                )

        def one(expert: int) -> QuantizedTensor:
            others = {key: tensor[expert] for key, tensor in stored.items()}
            codes = canonical_codes(others.pop("codes"), spec.format, spec.n, spec.k)
            weight = QuantizedTensor(spec.format, codes, **others)
            check_around_codes(weight)
            return weight

        every = (one(expert) for expert in range(spec.experts))
        return packed_for(every, self.dtype, spec.experts)

    def _bias_shape(self) -> tuple[int, ...]:
        return self.spec.experts, self.spec.n


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
