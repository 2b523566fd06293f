"""`out = x @ w.T` on packed weights, as a function. The op under it is serving/op.py, modules are
linear.py."""

from __future__ import annotations

import os

import torch

from humming.dispatch.sources import load_table, locate
from humming.errors import LayoutError
from humming.quantize.layout import PackedWeight
from humming.quantize.tensor import QuantizedTensor, check_tensor
from humming.serving.layer_spec import LayerSpec
from humming.serving.op import through_op
from humming.serving.operands import check_bias
from humming.spec.layouts import row_scaled
from humming.state import ACTIVATIONS, packed_on_device


def gemm(
    x: torch.Tensor,
    weight: PackedWeight | QuantizedTensor,
    bias: torch.Tensor | None = None,
    table: str | os.PathLike[str] | None = None,
) -> torch.Tensor:
    """`x[..., k] @ w[n, k].T + bias[n]` as [..., n] in x's dtype (fp32, bf16 or fp16).

    On CUDA x is bf16 or fp16, and so are group scales. A QuantizedTensor is packed at each call:
    pack it once with `humming.quantize.pack`, or use HummingLinear. `table` names a tuned table,
    else the default one serves. Raises LayoutError on a shape, dtype or device that does not fit,
    TableError on a table that cannot be used.
    """
    if not isinstance(weight, (PackedWeight, QuantizedTensor)):
        raise LayoutError(
            f"gemm takes a QuantizedTensor or a PackedWeight, but got {type(weight).__name__}; "
            "quantize the weight with humming.quantize"
        )
    check_tensor(x, "x", "[..., k]")
    if isinstance(weight, QuantizedTensor):
        kept = weight.scales.dtype
        own = kept if kept in ACTIVATIONS and not row_scaled(weight.weight_format) else x.dtype
        packed = packed_on_device(weight, own if own in ACTIVATIONS else torch.bfloat16)
    else:
        packed = weight
    if bias is not None:
        check_bias(bias, packed.n)
    path = locate(table) if table is not None else None
    if path is not None:
        load_table(path)
    spec = LayerSpec.of(packed, None if path is None else str(path))
    return through_op(x, packed, bias, spec.text)
