"""What the operands of a call must be, each wrong one in one sentence. Serving them is plan.py."""

from __future__ import annotations

import torch

from humming.errors import LayoutError
from humming.quantize.layout import LAYER_TENSORS, PackedWeight, packed_shapes
from humming.quantize.tensor import check_tensor
from humming.serving.layer_spec import SCALE_DTYPE_OF, LayerSpec, x_dtype_of
from humming.spec.formats import QuantFormat
from humming.spec.layouts import LAYOUTS, has_row_scales
from humming.state import ACTIVATIONS

NO_BACKWARD = "HummingLinear has no backward; call it under torch.inference_mode()"


def check_call(x: torch.Tensor, spec: LayerSpec, bias: torch.Tensor | None) -> None:
    """Raises LayoutError where the shape or type of `x` or `bias` does not fit `spec`."""
    check_dtype(x.dtype, spec)
    n, k = spec.n, spec.k
    if x.ndim < 1 or x.shape[-1] != k:
        raise LayoutError(
            f"`x.shape[-1] == k` must hold, but got x {list(x.shape)} for a layer of k={k}, n={n}"
        )
    if bias is not None:
        check_bias(bias, n)


def check_bias(bias: torch.Tensor, *shape: int) -> None:
    """Raises LayoutError unless `bias` is fp32, bf16 or fp16 of `shape`."""
    check_tensor(bias, "bias", "[n]" if len(shape) == 1 else "[experts, n]")
    if tuple(bias.shape) != shape or bias.dtype not in ACTIVATIONS:
        raise LayoutError(
            f"bias must be fp32, bf16 or fp16 {list(shape)}, but got {_name(bias.dtype)} "
            f"{list(bias.shape)}"
        )


def check_dtype(dtype: torch.dtype, spec: LayerSpec) -> None:
    if dtype not in ACTIVATIONS:
        raise LayoutError(
            f"x must be fp32, bf16 or fp16, but got {_name(dtype)}; convert it with x.to()"
        )
    if spec.x_dtype not in (None, ACTIVATIONS[dtype]):
        wanted = _name(SCALE_DTYPE_OF[str(spec.x_dtype)])
        raise LayoutError(
            f"x must be {spec.x_dtype} as the layer's scales are, but got "
            f"{ACTIVATIONS[dtype]}; convert it with x.to(torch.{wanted})"
        )


def check_tensors(x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None) -> None:
    """Raises LayoutError where the tensors are not on one device that reads the layout, or the
    packed ones are not as it says.
    """
    kind = LAYOUTS[weight.layout].kind
    tensors = {"x": x, **weight.tensors, "bias": bias}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device.type != kind:
            raise LayoutError(
                f"layout '{weight.layout}' serves on {'the CPU' if kind == 'cpu' else 'CUDA'}, but "
                f"got {name} on {tensor.device}; move it with .to('{kind}')"
            )
        if tensor is not None and tensor.device != x.device:
            raise LayoutError(
                f"all tensors of a call must be on one device, but got x on {x.device} and {name} "
                f"on {tensor.device}; move x with x.to('{tensor.device}')"
            )
    _check_packed(weight, kind)


def _check_packed(weight: PackedWeight, kind: str) -> None:
    """Raises LayoutError where a tensor is missing, or not as the layout says."""
    quant = QuantFormat.parse(weight.format)
    form = quant.weight
    needed = {"codes": True, "scales": True, "zero_points": form.zero_point is not None}
    needed["row_scales"] = has_row_scales(weight.layout, form)
    needed["input_scale"] = quant.activation is not None and not quant.activation.dynamic
    shapes = packed_shapes(weight.layout, weight.format, weight.n, weight.k)
    float_dtype = torch.float32 if kind == "cpu" else weight.scales.dtype
    held = {"codes": torch.int32, "permutation": torch.int32}
    held |= {"row_scales": torch.float32, "input_scale": torch.float32}
    if kind == "cuda" and x_dtype_of(weight) and weight.scale_dtype in ACTIVATIONS:
        float_dtype = weight.scale_dtype
    for name in LAYER_TENSORS:
        tensor = getattr(weight, name)
        if tensor is None:
            if needed.get(name):
                raise LayoutError(
                    f"{name} must be given for format '{weight.format}', but are not; pack the "
                    "weight with humming.quantize.pack"
                )
            continue
        if tuple(tensor.shape) != shapes[name]:
            raise LayoutError(
                f"{name} must be packed for n={weight.n}, k={weight.k} as {list(shapes[name])}, "
                f"but got {list(tensor.shape)}; pack the weight with humming.quantize.pack"
            )
        wanted = held.get(name, float_dtype)
        if tensor.dtype != wanted or not tensor.is_contiguous():
            raise LayoutError(
                f"layout '{weight.layout}' holds contiguous {_name(wanted)} {name}, but got "
                f"{_name(tensor.dtype)}; convert the layer with .to(), which packs it anew, and "
                "leave its buffers alone"
            )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
