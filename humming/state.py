"""The forms of a layer's weight: codes two a byte as a state_dict has them, and packed for the
device that it is on. The layer itself is linear.py; what lies where in a layout is quantize/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from humming.errors import LayoutError
from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.tensor import QuantizedTensor
from humming.spec.device import Device
from humming.spec.layouts import LAYOUTS, layout_for

ACTIVATIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""Activation types that a layer takes, and their names in a problem."""

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


def layout_on(device: torch.device, format: str) -> str:
    """The layout in which a weight of `format` is kept on `device`."""
    # The kind decides: all families of a kind read one layout, so no GPU is asked.
    return layout_for(Device(kind_of(device), name="", arch="", cache_bytes=0), format)


def scales_follow(layout: str, dtype: torch.dtype) -> bool:
    """Whether the scales of `layout` are kept in the activation's type, `dtype`, and can be.

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


def packed_on_device(q: QuantizedTensor, dtype: torch.dtype) -> PackedWeight:
    """`q` packed for the device that it is on and for a layer of `dtype`.

    On CUDA scales are rounded to `dtype`, as `.to(dtype)` rounds the weight of an nn.Linear.
    Raises LayoutError where the layout cannot hold them.
    """
    layout = layout_on(q.codes.device, q.format)
    if scales_follow(layout, dtype) and q.scales.dtype != dtype:
        q = replace(q, scales=_rounded(q.scales, dtype))
    return pack(q, layout)


def repacked(weight: PackedWeight, dtype: torch.dtype) -> PackedWeight:
    """`weight` in the form that its device and a layer of `dtype` want; itself where it has it."""
    layout = layout_on(weight.codes.device, weight.format)
    follow = scales_follow(layout, dtype)
    if weight.layout != layout:
        return packed_on_device(unpack(weight), dtype)
    if follow and weight.scale_dtype != dtype:
        return replace(weight, scales=_rounded(weight.scales, dtype), scale_dtype=dtype)
    return weight


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


def paired(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [n, k / 2] of signed 4-bit codes int8 [n, k]: two a byte, low nibble first."""
    nibbles = codes.view(torch.uint8) & 0xF
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)


def unpaired(pairs: torch.Tensor, n: int, k: int) -> torch.Tensor:
    """The inverse of `paired`. Raises LayoutError on another shape or type."""
    if tuple(pairs.shape) != (n, k // 2) or pairs.dtype != torch.uint8:
        raise LayoutError(
            f"codes must be uint8 [{n}, {k // 2}], two a byte, but got {pairs.dtype} "
            f"{list(pairs.shape)}; load the state_dict of a layer of this shape"
        )
    nibbles = torch.stack((pairs & 0xF, pairs >> 4), dim=2).view(n, k)
    return (nibbles ^ 8).view(torch.int8) - 8  # sign extension of 4 bits


def _rounded(scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = scales.to(dtype)
    if not out.is_meta and not bool((out.isfinite() & ((out != 0) | (scales == 0))).all()):
        raise LayoutError(
            f"scales must fit {ACTIVATIONS[dtype]}, but some become zero or infinite; "
            "keep the layer's type, bf16 holds the range of fp32"
        )
    return out
