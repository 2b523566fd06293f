"""The torch op `humming::linear`, registered by importing this module.

Its arguments are tensors and one string of content, never a handle of this process, so that
compiled graphs can be written to disk and run elsewhere.
"""

from __future__ import annotations

import torch

from humming.errors import LayoutError
from humming.plan import place_of
from humming.quantize.layout import PackedWeight
from humming.serving.binding import bound
from humming.serving.layer_spec import parse_layer
from humming.serving.operands import NO_BACKWARD, check_call, check_tensors
from humming.serving.rows import run


def through_op(
    x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None, layer: str
) -> torch.Tensor:
    """The op `humming::linear` through torch's dispatcher, modes and compilers included."""
    out: torch.Tensor = torch.ops.humming.linear(
        x,
        weight.codes,
        weight.scales,
        weight.zero_points,
        weight.row_scales,
        weight.permutation,
        weight.input_scale,
        bias,
        layer,
    )
    return out


def _linear(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    row_scales: torch.Tensor | None,
    permutation: torch.Tensor | None,
    input_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    layer: str,
) -> torch.Tensor:
    spec = parse_layer(layer)
    weight = spec.weight(codes, scales, zero_points, row_scales, permutation, input_scale)
    check_call(x, spec, bias)
    check_tensors(x, weight, bias)
    if (permutation is not None) != spec.act_order:
        raise LayoutError(
            f"permutation must be given where act_order is, but got act_order={spec.act_order}; "
            "build the layer's text with humming.serving.layer_spec.LayerSpec.of"
        )
    if bias is not None:
        bias = bias.to(torch.float32).contiguous()
    return run(x, bound(spec, x.dtype, bias is not None, place_of(x.device)), weight, bias)


def _linear_fake(
    x: torch.Tensor,
    _codes: torch.Tensor,
    _scales: torch.Tensor,
    _zero_points: torch.Tensor | None,
    _row_scales: torch.Tensor | None,
    _permutation: torch.Tensor | None,
    _input_scale: torch.Tensor | None,
    bias: torch.Tensor | None,
    layer: str,
) -> torch.Tensor:
    spec = parse_layer(layer)
    check_call(x, spec, bias)
    return x.new_empty((*x.shape[:-1], spec.n))


def _no_backward(_ctx: object, _gradient: torch.Tensor) -> None:
    raise LayoutError(NO_BACKWARD)


_LIBRARY = torch.library.Library("humming", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "linear(Tensor x, Tensor codes, Tensor scales, Tensor? zero_points, Tensor? row_scales, "
    "Tensor? permutation, Tensor? input_scale, Tensor? bias, str layer) -> Tensor"
)
_LIBRARY.impl("linear", _linear, "CPU")  # type: ignore[no-untyped-call]
_LIBRARY.impl("linear", _linear, "CUDA")  # type: ignore[no-untyped-call]
torch.library.register_fake("humming::linear", _linear_fake, lib=_LIBRARY)
torch.library.register_autograd("humming::linear", _no_backward, lib=_LIBRARY)
