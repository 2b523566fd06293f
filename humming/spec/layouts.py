"""One table of weight layouts: for which devices, formats and sizes each is made. No tensors here;
what lies where is written in quantize/."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming.spec.carriers import native
from humming.spec.device import Device
from humming.spec.formats import QuantFormat, TensorFormat


@dataclass(frozen=True)
class Layout:
    """A way to pack a layer's weight, the same for every family and m that serves the layer.

    `kind` is the device kind that reads it, `holds_weight` says which weights it can hold, in words
    `holds_what`, and `scale_dtypes` the types that the layer, and so its group scales, may have
    there. Groups are cut to the largest of `group_sizes` that divides theirs (empty: kept), and
    there are so many of them as `unit_k` columns, a multiple, need. Where `tile_scales`, the scale
    of a block stands once for 16 rows, in fp32.
    """

    name: str
    kind: str
    holds_weight: Callable[[TensorFormat], bool]
    holds_what: str
    scale_dtypes: tuple[str, ...]
    group_sizes: tuple[int, ...] = ()
    unit_k: int = 1
    tile_scales: bool = False

    def holds(self, format: str) -> bool:
        """Whether weights of `format` can be packed so; what a kernel can do with them is
        legality's word."""
        return self.holds_weight(QuantFormat.parse(format).weight)


CPU_LAYOUT = "cpu_n16k8"
CUDA_LAYOUT = "cuda_n16k64"
CUDA_A8_LAYOUT = "cuda_n16k64_a8"
"""For products of 8-bit codes; on CUDA everything else is multiplied in 16 bits."""


def _in_eights(weight: TensorFormat) -> bool:
    return (weight.group_size or 8) % 8 == 0


LAYOUTS: dict[str, Layout] = {
    layout.name: layout
    for layout in (
        Layout(CPU_LAYOUT, "cpu", lambda _: True, "every format", ("fp32", "bf16", "fp16")),
        Layout(
            CUDA_LAYOUT,
            "cuda",
            _in_eights,
            "groups and blocks of a multiple of 8",
            ("bf16", "fp16"),
            (128, 64, 32, 16, 8),
            128,
        ),
        Layout(
            CUDA_A8_LAYOUT,
            "cuda",
            _in_eights,
            "groups and blocks of a multiple of 8",
            ("bf16", "fp16"),
            (128, 64, 32),
            128,
            tile_scales=True,
        ),
    )
}


def layout_for(device: Device, format: str, op: str = "dense", act_order: bool = False) -> str:
    """The layout in which `device` reads weights of `format`.

    A GPU that multiplies the codes of both operands as they are has a layout for that; not for
    experts with act-order, as x is quantized once for all of them. Where no layout of the device's
    kind holds the format, the kind's first one: packing then says why not.
    """
    able = device.kind == "cuda" and native(format, device.compute_capability or (0, 0))
    if able and (op == "dense" or not act_order):
        return CUDA_A8_LAYOUT
    of_kind = [layout for layout in LAYOUTS.values() if layout.kind == device.kind]
    of_kind = of_kind or [LAYOUTS[CPU_LAYOUT]]
    return next((layout.name for layout in of_kind if layout.holds(format)), of_kind[0].name)


def row_scaled(weight: TensorFormat) -> bool:
    """Whether a row has one scale and no zero point: it is applied once, to the sum, in fp32, and
    there are no group scales."""
    return weight.granularity in ("tensor", "channel") and weight.zero_point is None


def relative_scales(layout: str, weight: TensorFormat) -> bool:
    """Whether group scales are packed in units of a row's largest, which is in its row scale: a
    range that products in 8 bits can take on."""
    return layout == CUDA_A8_LAYOUT and weight.scale_dtype == "e8m0"


def has_row_scales(layout: str, weight: TensorFormat) -> bool:
    """Whether a weight in `layout` has fp32 scales of whole rows, applied to sums over k."""
    return row_scaled(weight) or weight.second_scale or relative_scales(layout, weight)


def packed_group_size(layout: str, weight: TensorFormat, k: int) -> int:
    """Columns that share a group scale in `layout`; 0 where a row has its `row_scales` alone."""
    if row_scaled(weight):
        return 0
    sizes, size = LAYOUTS[layout].group_sizes, weight.group_size
    if size is None:
        return sizes[0] if sizes else k
    return next((s for s in sizes if size % s == 0), size)


def packed_groups(layout: str, weight: TensorFormat, k: int) -> int:
    """How many group scales a row has in `layout`, those of its padding included."""
    size, unit = packed_group_size(layout, weight, k), LAYOUTS[layout].unit_k
    return -(-(-(-k // unit) * unit) // size) if size else 0


def tile_scaled(layout: str, weight: TensorFormat) -> bool:
    """Whether 16 rows share each scale in `layout`: those of a block, which are kept in fp32."""
    whole = weight.granularity == "block" and (weight.group_size or 0) % 16 == 0
    return LAYOUTS[layout].tile_scales and whole


def packed_scale_dtype(layout: str, weight: TensorFormat, activation: str) -> str:
    """The type of group scales, and zero points, in `layout` for a layer of type `activation`."""
    if LAYOUTS[layout].kind == "cpu" or tile_scaled(layout, weight):
        return "fp32"
    return "bf16" if weight.scale_dtype == "e8m0" else activation  # fp16 lacks its range


def cuda_group_size(weight: TensorFormat) -> int:
    """`packed_group_size` on CUDA, whatever k is."""
    return packed_group_size(CUDA_LAYOUT, weight, 0)


def cuda_groups(weight: TensorFormat, k: int) -> int:
    """`packed_groups` on CUDA."""
    return packed_groups(CUDA_LAYOUT, weight, k)


def cuda_scale_dtype(weight: TensorFormat, activation: str) -> str:
    """`packed_scale_dtype` on CUDA."""
    return packed_scale_dtype(CUDA_LAYOUT, weight, activation)


CUDA_UNIT_K = LAYOUTS[CUDA_LAYOUT].unit_k
