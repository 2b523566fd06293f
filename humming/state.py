"""The forms of a layer's weight: codes bit by bit as a state_dict has them, and packed for the
device that it is on. The layer itself is linear.py; what lies where in a layout is quantize/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from humming.dispatch.dispatcher import why_unservable
from humming.errors import LayoutError
from humming.quantize.files import canonical
from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.planes import bit_packed
from humming.quantize.tensor import QuantizedTensor
from humming.spec.device import Device
from humming.spec.formats import QuantFormat
from humming.spec.layouts import LAYOUTS, layout_for, packed_scale_dtype, row_scaled, tile_scaled
from humming.spec.problem import Problem

ACTIVATIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""Activation types that a layer takes, and their names in a problem."""
ACTIVATION_DTYPES = {name: dtype for dtype, name in ACTIVATIONS.items()}

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def kind_of(device: torch.device) -> str:
    """Which kind of device serves a tensor on `device`: "cuda" or "cpu".

    Meta tensors count as the CPU's until they are filled elsewhere. Raises LayoutError for a device
    without kernels.
    """
    if device.type not in ("cpu", "cuda", "meta"):
        raise LayoutError(
            f"a HummingLinear must be on the CPU or on CUDA, the devices with kernels, but got "
            f"{device}; move it with .to('cpu')"
        )
    return "cuda" if device.type == "cuda" else "cpu"


def layout_on(device: torch.device, format: str, op: str = "dense", act_order: bool = False) -> str:
    """The layout in which a weight of `format` is kept on `device`."""
    in_full = QuantFormat.parse(format).activation is not None
    return layout_for(_described(device, in_full), format, op, act_order)


def _described(device: torch.device, in_full: bool = True) -> Device:
    """What layouts and rules ask of `device`; a GPU is asked only `in_full`, as those of one kind
    read one layout of weights whose activations have 16 bits."""
    kind = kind_of(device)
    able = torch.cuda.get_device_capability(device) if kind == "cuda" and in_full else None
    return Device(kind, name=str(device), arch="", cache_bytes=0, compute_capability=able)


def scales_follow(layout: str, dtype: torch.dtype) -> bool:
    """Whether the group scales of `layout` are kept in the activation's type, `dtype`, and can be.

    CPU layouts keep them as they came. Raises LayoutError where the layout cannot have that type.
    """
    row = LAYOUTS[layout]
    if row.kind == "cpu":
        return False
    if ACTIVATIONS[dtype] not in row.scale_dtypes:
        raise LayoutError(
            f"a layer on CUDA must be {' or '.join(row.scale_dtypes)}, but got "
            f"{ACTIVATIONS[dtype]}; convert it with .to(torch.bfloat16) first"
        )
    return True


def why_unserved(format: str, n: int, k: int, dtype: torch.dtype, device: torch.device) -> str:
    """Why no family serves such a layer on `device`, in one sentence; "" where one does."""
    here = _described(device)
    name = ACTIVATIONS[dtype]
    problem = Problem(
        format,
        n=n,
        k=k,
        m=1,
        activation_dtype=name,
        output_dtype=name,
        layout=layout_for(here, format),
    )
    return why_unservable(problem, here)


def packed_on_device(q: QuantizedTensor, dtype: torch.dtype) -> PackedWeight:
    """`q` packed for the device that it is on and for a layer of `dtype`.

    On CUDA group scales are rounded to `dtype`, as `.to(dtype)` rounds the weight of an nn.Linear;
    scales of a row stay as they are. Raises LayoutError where the layout cannot hold them.
    """
    layout = layout_on(q.codes.device, q.format)
    return pack(in_layer_type(q, layout, dtype), layout, dtype)


def in_layer_type(q: QuantizedTensor, layout: str, dtype: torch.dtype) -> QuantizedTensor:
    """`q` with scales and zero points of the type that `layout` wants of a layer of `dtype`."""
    if (
        scales_follow(layout, dtype)
        and q.scales.dtype != dtype
        and _rounds(q.scales.dtype, q.format, layout)
    ):
        zeros = q.zero_points
        if zeros is not None and zeros.is_floating_point():
            zeros = _rounded(zeros, dtype)
        q = replace(q, scales=_rounded(q.scales, dtype), zero_points=zeros)
    return q


def repacked(weight: PackedWeight, dtype: torch.dtype) -> PackedWeight:
    """`weight` in the form that its device and a layer of `dtype` want; itself where it has it."""
    layout = layout_on(weight.codes.device, weight.format)
    scales_follow(layout, dtype)  # raises where no layer is of that type there
    if weight.layout != layout:
        return packed_on_device(unpack(weight), dtype)
    wanted = packed_dtype(layout, weight.format, dtype)
    if weight.scales.dtype == wanted:
        return weight
    zeros = weight.zero_points
    return replace(
        weight,
        scales=_rounded(weight.scales, wanted),
        zero_points=None if zeros is None else _rounded(zeros, wanted),
        scale_dtype=(
            dtype if _rounds(weight.scale_dtype, weight.format, layout) else weight.scale_dtype
        ),
    )


def packed_dtype(layout: str, format: str, dtype: torch.dtype) -> torch.dtype:
    """The type of the group scales of a layer of `dtype` in `layout`."""
    weight = QuantFormat.parse(format).weight
    return ACTIVATION_DTYPES[packed_scale_dtype(layout, weight, ACTIVATIONS[dtype])]


def _rounds(scale_dtype: torch.dtype, format: str, layout: str) -> bool:
    """Whether scales of this type become the layer's where they follow it: those of 8 bits are held
    exactly, and those of a row, or of a block in some layouts, are kept in fp32."""
    weight = QuantFormat.parse(format).weight
    in_fp32 = row_scaled(weight) or tile_scaled(layout, weight)
    return scale_dtype in ACTIVATIONS and not in_fp32


def moved(fn: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """What `fn`, a conversion by nn.Module, does to `tensor` apart from casting it."""
    bits = tensor.view(_BITS[tensor.element_size()])
    out = fn(bits)
    if out.dtype != bits.dtype:  # Module.type() casts integers too
        out = bits.to(out.device)
    return out.view(tensor.dtype)


def wait_until_written(weight: torch.Tensor) -> None:
    """Returns when the stream that moves or packs `weight` is done: kernels on a GPU may read
    weights before their turn in the stream."""
    if weight.is_cuda and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(weight.device).synchronize()


def stored_codes(q: QuantizedTensor) -> torch.Tensor:
    """The codes as a state_dict has them: uint8 [n, ceil(k * bits / 8)], side by side along k, the
    first in the lowest bits, signed integers as two's complement."""
    return bit_packed(q.codes.view(torch.uint8), q.weight_format.dtype.bits)


def canonical_codes(stored: torch.Tensor, format: str, n: int, k: int) -> torch.Tensor:
    """The inverse of `stored_codes`. Raises LayoutError on another shape or type."""
    codes = canonical(stored, format, k)
    if codes.shape[0] != n:
        raise LayoutError(
            f"codes must be uint8 of {n} rows, but got {list(stored.shape)}; load the state_dict "
            "of a layer of this shape and format"
        )
    return codes


def _rounded(scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = scales.to(dtype)
    if not out.is_meta and not bool((out.isfinite() & ((out != 0) | (scales == 0))).all()):
        raise LayoutError(
            f"scales and zero points must fit {ACTIVATIONS[dtype]}, but some become zero or "
            "infinite; keep the layer's type, bf16 holds the range of fp32"
        )
    return out


def format_tensor(format: str) -> torch.Tensor:
    """uint8 [length]: the name of a format as a state_dict holds it, tensors alone."""
    return torch.tensor(list(format.encode()), dtype=torch.uint8)


def other_format(told: torch.Tensor | None, format: str) -> str:
    """Why a state_dict of format `told` does not fit a layer of `format`; "" where it does, or
    where nothing was told, as by version 0.1.0."""
    if told is None or told.is_meta:
        return ""
    name = bytes(told.reshape(-1).to(torch.uint8).tolist()).decode(errors="replace")
    if name == format:
        return ""
    return (
        f"the state_dict holds {name}, but the layer is {format}; "
        "load it into a layer of its own format"
    )
