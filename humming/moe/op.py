"""The torch op `humming::moe_gemm`: its arguments are tensors, numbers and one string of content,
so that compiled graphs can be written to disk. The function is gemm.py."""

from __future__ import annotations

import json
from functools import lru_cache

import torch

from humming.errors import LayoutError
from humming.moe.plan import ExpertsSpec, bound_experts
from humming.moe.rows import Rows
from humming.plan import place_of
from humming.quantize.experts import PackedExperts
from humming.quantize.layout import packed_shapes
from humming.quantize.tensor import SCALE_DTYPES
from humming.spec.layouts import LAYOUTS
from humming.state import ACTIVATIONS
from humming.warm import has_tangent

NO_BACKWARD = "a mixture of experts has no backward; call it under torch.inference_mode()"

_SCALE_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}


def through_op(
    x: torch.Tensor,
    weight: PackedExperts,
    bias: torch.Tensor | None,
    rows: Rows,
    layer: str,
) -> torch.Tensor:
    """The op through torch's dispatcher, modes and compilers included: [rows, n]."""
    out: torch.Tensor = torch.ops.humming.moe_gemm(
        x,
        weight.codes,
        weight.scales,
        weight.zero_points,
        weight.row_scales,
        weight.permutation,
        bias,
        rows.groups,
        rows.grouping,
        rows.count,
        rows.tokens,
        rows.shared,
        rows.first_expert,
        rows.capacity,
        layer,
    )
    return out


@lru_cache(maxsize=4096)
def parse_spec(layer: str) -> ExpertsSpec:
    """The spec that `ExpertsSpec.text` wrote. Raises LayoutError on anything else."""
    try:
        return ExpertsSpec(**json.loads(layer))
    except (ValueError, TypeError) as error:
        raise LayoutError(
            "humming::moe_gemm's layer must be an ExpertsSpec's text, but got "
            f"{layer[:60]!r}; build it with humming.moe.plan.ExpertsSpec"
        ) from error


def check_operands(
    x: torch.Tensor, weight: PackedExperts, bias: torch.Tensor | None, rows: Rows
) -> None:
    """Raises LayoutError where shapes, types or devices do not fit."""
    if x.dtype not in ACTIVATIONS:
        raise LayoutError(f"x must be fp32, bf16 or fp16, but got {x.dtype}; convert it")
    numbers = {"contiguous": ("offsets", weight.experts + 1), "masked": ("counts", weight.experts)}
    name, size = numbers.get(rows.grouping, ("", 0))
    if name and len(rows.groups) != size:
        raise LayoutError(
            f"{name} must be {size} numbers for {weight.experts} experts, but got "
            f"{len(rows.groups)}"
        )
    if x.ndim != 2 or x.shape[1] != weight.k or x.shape[0] * rows.shared != rows.count:
        raise LayoutError(
            f"x must be [{rows.count // rows.shared}, {weight.k}], but got {list(x.shape)}"
        )
    wanted = (weight.experts, weight.n)
    if bias is not None and (tuple(bias.shape) != wanted or bias.dtype not in ACTIVATIONS):
        raise LayoutError(f"bias must be floats {list(wanted)}, but got {list(bias.shape)}")
    _check_weight(x, weight, bias, rows)


def _check_weight(
    x: torch.Tensor, weight: PackedExperts, bias: torch.Tensor | None, rows: Rows
) -> None:
    kind = LAYOUTS[weight.layout].kind
    shapes = packed_shapes(weight.layout, weight.format, weight.n, weight.k)
    for name, tensor in {"x": x, "bias": bias, "rows": rows.groups, **weight.tensors}.items():
        if tensor is None:
            continue
        if tensor.device != x.device or tensor.device.type != kind:
            raise LayoutError(
                f"layout '{weight.layout}' and all tensors of a call must be on one {kind} device, "
                f"but got {name} on {tensor.device}; move it"
            )
        if name in shapes and (
            tuple(tensor.shape) != (weight.experts, *shapes[name]) or not tensor.is_contiguous()
        ):
            raise LayoutError(
                f"{name} must be packed as {[weight.experts, *shapes[name]]}, but got "
                f"{list(tensor.shape)}; pack the experts with humming.quantize.pack_experts"
            )
    follows = kind == "cuda" and weight.scales.numel() and weight.scale_dtype in ACTIVATIONS
    if follows and weight.scales.dtype != torch.float32 and x.dtype != weight.scales.dtype:
        raise LayoutError(
            f"x must be {weight.scales.dtype} as the experts' scales are, but got {x.dtype}"
        )


def run(
    x: torch.Tensor,
    weight: PackedExperts,
    bias: torch.Tensor | None,
    rows: Rows,
    spec: ExpertsSpec,
) -> torch.Tensor:
    """The call below torch's dispatcher."""
    check_operands(x, weight, bias, rows)
    if bias is not None:
        bias = bias.to(torch.float32).contiguous()
    if x.shape[0] and (x.stride(1) != 1 or x.stride(0) < weight.k):
        x = x.clone(memory_format=torch.contiguous_format)
    plan = bound_experts(spec, x.dtype, bias is not None, place_of(x.device))
    return plan.run_experts(x, weight, bias, rows)


def _moe_gemm(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    row_scales: torch.Tensor | None,
    permutation: torch.Tensor | None,
    bias: torch.Tensor | None,
    groups: torch.Tensor,
    grouping: str,
    count: int,
    tokens: int,
    shared: int,
    first_expert: int,
    capacity: int,
    layer: str,
) -> torch.Tensor:
    spec = parse_spec(layer)
    if grouping == "indexed" and tokens:
        spec = spec.of_top_k(count // tokens)
    weight = PackedExperts(
        spec.format,
        spec.experts,
        spec.n,
        spec.k,
        spec.layout,
        codes,
        scales,
        _SCALE_DTYPES[spec.scale_dtype],
        zero_points,
        row_scales,
        permutation,
    )
    rows = Rows(grouping, groups, count, tokens, shared, first_expert, capacity)
    return run(x, weight, bias, rows, spec)


def _moe_gemm_fake(
    x: torch.Tensor,
    _codes: torch.Tensor,
    _scales: torch.Tensor,
    _zero_points: torch.Tensor | None,
    _row_scales: torch.Tensor | None,
    _permutation: torch.Tensor | None,
    _bias: torch.Tensor | None,
    _groups: torch.Tensor,
    _grouping: str,
    count: int,
    _tokens: int,
    _shared: int,
    _first_expert: int,
    _capacity: int,
    layer: str,
) -> torch.Tensor:
    return x.new_empty((count, parse_spec(layer).n))


def refuse_gradients(*inputs: torch.Tensor) -> None:
    """Raises LayoutError where autograd asks for a derivative along one of `inputs`."""
    asked = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    if asked or any(has_tangent(tensor) for tensor in inputs):
        raise LayoutError(NO_BACKWARD)


def _no_backward(_ctx: object, _gradient: torch.Tensor) -> None:
    raise LayoutError(NO_BACKWARD)


_LIBRARY = torch.library.Library("humming", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "moe_gemm(Tensor x, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? row_scales, "
    "Tensor? permutation, Tensor? bias, Tensor groups, str grouping, SymInt count, SymInt tokens, "
    "int shared, int first_expert, SymInt capacity, str layer) -> Tensor"
)
_LIBRARY.impl("moe_gemm", _moe_gemm, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("moe_gemm", _moe_gemm, "CUDA")  # type: ignore[no-untyped-call]
torch.library.register_fake("humming::moe_gemm", _moe_gemm_fake, lib=_LIBRARY)
torch.library.register_autograd("humming::moe_gemm", _no_backward, lib=_LIBRARY)
