"""PackedWeight: a weight in the layout that a device's kernels read, there and back.

Where each bit lies is a module a layout, layout_cpu.py and layout_cuda.py; for which devices and
formats each is made is spec/layouts.py. Quantizing is quantizers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch

from humming.errors import LayoutError
from humming.quantize import layout_cpu, layout_cuda, layout_cuda_a8
from humming.quantize.tensor import SCALE_DTYPES, QuantizedTensor
from humming.spec.formats import QuantFormat, TensorFormat
from humming.spec.layouts import (
    CPU_LAYOUT,
    CUDA_A8_LAYOUT,
    CUDA_LAYOUT,
    LAYOUTS,
    packed_group_size,
    packed_groups,
    packed_scale_dtype,
    relative_scales,
    row_scaled,
    tile_scaled,
)
from humming.spec.naming import did_you_mean

ROW_MULTIPLE = 16
"""Every layout pads n to a multiple of this."""
_MAPS: dict[str, ModuleType] = {
    CPU_LAYOUT: layout_cpu,
    CUDA_LAYOUT: layout_cuda,
    CUDA_A8_LAYOUT: layout_cuda_a8,
}
_TORCH_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}
_EIGHT_BITS = (torch.float8_e4m3fn, torch.float8_e8m0fnu)


@dataclass(frozen=True, eq=False)
class PackedWeight:
    """A weight in a kernel's layout: `codes`, `scales` and `zero_points` as its fragment map says.

    codes        int32
    scales       one a group of k, in the layout's type; none (0 groups) where a row has one scale
                 and no zero point
    scale_dtype  what the scales were before they were packed, maybe as a wider type that holds
                 them exactly
    zero_points  None, or packed as the scales are, in the codes' own units
    row_scales   None, or fp32 [16 * ceil(n / 16)]: times the sum over k of a row, once. The scales
                 of a channel or a tensor, or the second level over groups
    permutation  None, or int32 [k]: x is gathered by it
    input_scale  None, or fp32 [1]: by which a static format quantizes x
    """

    format: str
    n: int
    k: int
    layout: str
    codes: torch.Tensor
    scales: torch.Tensor
    scale_dtype: torch.dtype
    zero_points: torch.Tensor | None = None
    row_scales: torch.Tensor | None = None
    permutation: torch.Tensor | None = None
    input_scale: torch.Tensor | None = None

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that exist, by field."""
        found = {name: getattr(self, name) for name in LAYER_TENSORS}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @property
    def nbytes(self) -> int:
        """Bytes that a kernel reads once per call."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> PackedWeight:
        """The same weight with other tensors in those fields."""
        changed: dict[str, Any] = dict(tensors)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> PackedWeight:
        """The same weight on `device`, in the same layout."""
        moved = self.with_tensors({name: t.to(device) for name, t in self.tensors.items()})
        settle(moved.codes)
        return moved


TENSORS = ("codes", "scales", "zero_points", "row_scales", "permutation")
"""The tensors of packed weights, of experts too, by field."""

LAYER_TENSORS = (*TENSORS, "input_scale")
"""Those of a PackedWeight."""


def pack(
    q: QuantizedTensor, layout: str = CPU_LAYOUT, activation: torch.dtype | None = None
) -> PackedWeight:
    """`q` in `layout`, on q's own device; CPU and CUDA tensors give the same bits.

    On CUDA group scales of 16 bits keep their type, and those of 8 bits get that of the
    `activation` (default bf16); where products are made in 8 bits, scales of blocks become fp32.
    Raises LayoutError for an unknown layout, or where it does not hold the format, the type of the
    scales or the zero points.
    """
    n, k = q.shape
    weight = q.weight_format
    _check_input_scale(q)
    dtype = _packed_dtype(q, layout, activation)
    with torch.no_grad():
        scales, zeros = q.row_scales_and_zeros(0, n)
        rows = None if q.global_scales is None else q.global_scales.expand(n)
        if row_scaled(weight):
            own = scales.to(torch.float32).reshape(-1).expand(n)
            rows, scales = own if rows is None else own * rows, scales[:, :0]
        elif relative_scales(layout, weight):
            rows, scales = _relative(scales)
        packed = PackedWeight(
            q.format,
            n,
            k,
            layout,
            _MAPS[layout].pack_codes(q.codes, weight.dtype.bits),
            _pack_groups(scales, layout, weight, k, dtype),
            q.scales.dtype,
            None if zeros is None else _pack_groups(zeros, layout, weight, k, dtype),
            None if rows is None else torch.nn.functional.pad(rows, (0, -n % ROW_MULTIPLE)),
            q.permutation,
            q.input_scale,
        )
    settle(packed.codes)
    return packed


def unpack(p: PackedWeight) -> QuantizedTensor:
    """The exact inverse of `pack`: canonical codes, and scales in their own dtype. A second level
    is one number where all rows have the same."""
    _check(p.format, p.layout)
    weight = QuantFormat.parse(p.format).weight
    codes = _MAPS[p.layout].unpack_codes(
        p.codes, p.n, p.k, weight.dtype.bits, weight.dtype.kind == "int"
    )
    rows = None if p.row_scales is None else p.row_scales[: p.n]
    if row_scaled(weight):
        assert rows is not None
        own = rows[:1] if weight.granularity == "tensor" else rows
        scales, shared = own.to(p.scale_dtype).view(-1, 1), None
    elif relative_scales(p.layout, weight):
        assert rows is not None
        own = _unpack_groups(p.scales, p, weight).to(torch.float32) * rows[:, None]
        scales, shared = own.to(p.scale_dtype), None
    else:
        scales = _unpack_groups(p.scales, p, weight).to(p.scale_dtype)
        shared = None if rows is None else _one_if_equal(rows)
    zeros = None
    if p.zero_points is not None:
        zeros = _unpack_groups(p.zero_points, p, weight)
        zeros = zeros.to(torch.uint8 if weight.zero_point == "int" else p.scale_dtype)
    return QuantizedTensor(p.format, codes, scales, zeros, shared, p.permutation, p.input_scale)


@lru_cache(maxsize=4096)
def packed_shapes(layout: str, format: str, n: int, k: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of a weight in `layout`, those that it may lack included."""
    weight, of = QuantFormat.parse(format).weight, _MAPS[layout]
    scales = _scales_shape(layout, weight, n, packed_groups(layout, weight, k))
    return {
        "codes": of.codes_shape(n, k, weight.dtype.bits),
        "scales": scales,
        "zero_points": scales,
        "row_scales": (-(-n // ROW_MULTIPLE) * ROW_MULTIPLE,),
        "permutation": (k,),
        "input_scale": (1,),
    }


def _check_input_scale(q: QuantizedTensor) -> None:
    activation = QuantFormat.parse(q.format).activation
    if activation is not None and not activation.dynamic and q.input_scale is None:
        raise LayoutError(
            f"x of format '{q.format}' is quantized by a scale of the layer's, but there is none; "
            "give the weight an input_scale, fp32 [1], or name a dynamic format"
        )


def _pack_groups(
    per_row: torch.Tensor, layout: str, weight: TensorFormat, k: int, dtype: torch.dtype
) -> torch.Tensor:
    """Scales or zero points [n, groups] of the format, repeated for the groups of the layout."""
    groups, repeats = packed_groups(layout, weight, k), _repeats(layout, weight, k)
    if groups == 0:
        return per_row.new_empty(_scales_shape(layout, weight, len(per_row), 0), dtype=dtype)
    wide = per_row.to(dtype)
    if per_row.dtype in _EIGHT_BITS and dtype == torch.float16 and not wide.is_meta:
        _check_range_of_fp16(wide)
    if repeats > 1:
        wide = wide.repeat_interleave(repeats, dim=1)[:, :groups]
    packed: torch.Tensor = _MAPS[layout].pack_scales(wide, groups)
    return packed


def _scales_shape(layout: str, weight: TensorFormat, n: int, groups: int) -> tuple[int, ...]:
    if tile_scaled(layout, weight):
        return layout_cuda_a8.scales_shape(n, groups, of_tiles=True)
    shape: tuple[int, ...] = _MAPS[layout].scales_shape(n, groups)
    return shape


def _relative(scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's largest of scales that are powers of two, fp32 [n], and all scales by it."""
    wide = scales.to(torch.float32)
    rows = wide.amax(1)
    relative = wide / rows[:, None]
    least = torch.finfo(torch.bfloat16).tiny
    if not wide.is_meta and bool((relative < least).any()):
        raise LayoutError(
            "scales of a row must be within 2^126 of each other for products in 8 bits, but some "
            "are not; quantize the weight without activations"
        )
    return rows, relative


def _check_range_of_fp16(scales: torch.Tensor) -> None:
    """Powers of two may be out of it, and a format that does not name them is not kept in bf16."""
    if not bool((scales.isfinite() & (scales != 0)).all()):
        raise LayoutError(
            "scales must fit fp16, but some become zero or infinite; make the layer bf16, which "
            "holds every power of two"
        )


def _unpack_groups(packed: torch.Tensor, p: PackedWeight, weight: TensorFormat) -> torch.Tensor:
    groups, repeats = packed_groups(p.layout, weight, p.k), _repeats(p.layout, weight, p.k)
    tiled = tile_scaled(p.layout, weight)
    rows: torch.Tensor = packed if tiled else _MAPS[p.layout].unpack_scales(packed, p.n, groups)
    rows = rows[:, ::repeats][:, : weight.groups(p.k)]
    step = (weight.group_size or 1) if weight.granularity == "block" else 1
    return rows[:: step // ROW_MULTIPLE if tiled else step].contiguous()


def _repeats(layout: str, weight: TensorFormat, k: int) -> int:
    """How many groups of the layout share one scale of the format."""
    size = packed_group_size(layout, weight, k)
    if size == 0:
        return 1
    return -(-k // size) if weight.group_size is None else weight.group_size // size


def _one_if_equal(rows: torch.Tensor) -> torch.Tensor:
    equal = rows.is_meta or bool((rows == rows[0]).all())
    return rows[:1].contiguous() if equal else rows.contiguous()


def _check(format: str, layout: str) -> None:
    if layout not in LAYOUTS:
        raise LayoutError(
            f"layout must be one of {', '.join(LAYOUTS)}, but got '{layout}'"
            f"{did_you_mean(layout, LAYOUTS)}"
        )
    if not LAYOUTS[layout].holds(format):
        raise LayoutError(
            f"layout '{layout}' holds {LAYOUTS[layout].holds_what}, but got format '{format}'; use "
            "another group size"
        )


def _packed_dtype(q: QuantizedTensor, layout: str, activation: torch.dtype | None) -> torch.dtype:
    """The type that q's group scales and zero points get in `layout`."""
    _check(q.format, layout)
    zeros, most = q.zero_points, min(1 << q.weight_format.dtype.bits, 255)
    if (
        zeros is not None
        and not zeros.is_floating_point()
        and not zeros.is_meta
        and bool(((zeros < 0) | (zeros > most)).any())
    ):
        raise LayoutError(
            f"`0 <= zero_points <= {most}` must hold for format '{q.format}', but some are not; "
            "shift codes and zero points alike"
        )
    legal = LAYOUTS[layout].scale_dtypes
    name = SCALE_DTYPES[q.scales.dtype]
    follows = row_scaled(q.weight_format) or tile_scaled(layout, q.weight_format)
    if q.scales.dtype in _EIGHT_BITS or follows:
        name = SCALE_DTYPES[activation or torch.bfloat16]
    if name not in legal:
        raise LayoutError(
            f"layout '{layout}' holds {' or '.join(legal)} scales, those of the activations, but "
            f"got {_TORCH_DTYPES[name]}; convert the scales, or quantize a weight of that type"
        )
    return _TORCH_DTYPES[packed_scale_dtype(layout, q.weight_format, name)]


def settle(codes: torch.Tensor) -> None:
    """Waits until a weight is written: kernels may read weights before their turn in the stream."""
    if codes.is_cuda and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(codes.device).synchronize()
