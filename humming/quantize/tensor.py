"""QuantizedTensor: canonical codes, scales and zero points of a weight. Layouts and quantizing are
elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from humming.errors import LayoutError
from humming.quantize.values import decode
from humming.spec.formats import QuantFormat, TensorFormat

WEIGHT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SCALE_DTYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8e4m3",
    torch.float8_e8m0fnu: "e8m0",
}
"""Types that scales may have, and their names."""
FIELDS = ("codes", "scales", "zero_points", "global_scales", "permutation", "input_scale")
"""The tensors of a QuantizedTensor."""
_ROWS_AT_ONCE_ELEMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A weight `w[n, k]` as codes and what gives them their size, in no kernel's layout.

    codes          int8 (signed integers) or uint8 (unsigned ones; floats as bit patterns) [n, k],
                   one a byte
    scales         one of SCALE_DTYPES: [n, 1] channel, [n, ceil(k / G)] group, [1, 1] tensor,
                   [ceil(n / B), ceil(k / B)] block; the last group or block may be ragged
    zero_points    None, or integer (z) or float (zf), of the scales' shape, in the codes' units
    global_scales  None, or fp32 [1] or [n]: a second level over all scales, or over a row's
    permutation    None, or int32 [k]: stored column j is input feature permutation[j]
    input_scale    None, or fp32 [1]: by which a static format, "...-fp8e4m3t", quantizes x

    `w[r, permutation[j]] = (value(codes[r, j]) - zero_points[r, g]) * scales[r, g] *
    global_scales[r]` with `g = j // G`. Raises LayoutError where a shape or dtype does not fit the
    format; numbers are looked at by `check_numbers` alone.
    """

    format: str
    codes: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None = None
    global_scales: torch.Tensor | None = None
    permutation: torch.Tensor | None = None
    input_scale: torch.Tensor | None = None

    def __post_init__(self) -> None:
        weight = self.weight_format
        wanted = torch.int8 if weight.dtype.kind == "int" else torch.uint8
        if self.codes.ndim != 2 or self.codes.dtype != wanted or 0 in self.codes.shape:
            raise LayoutError(
                f"codes must be {_name(wanted)} [n, k] for format '{self.format}', but got "
                f"{describe(self.codes)}; store one code a byte"
            )
        shape = scale_shape(weight, *self.shape)
        _check_scales(self, weight, shape)
        _check_zero_points(self, weight, shape)
        n, k = self.shape
        if self.global_scales is not None and (
            tuple(self.global_scales.shape) not in ((1,), (n,))
            or self.global_scales.dtype != torch.float32
        ):
            raise LayoutError(
                f"global_scales must be fp32 [1] or [{n}], but got {describe(self.global_scales)}; "
                "give one for all rows, or one a row"
            )
        if self.permutation is not None and (
            tuple(self.permutation.shape) != (k,) or self.permutation.dtype != torch.int32
        ):
            raise LayoutError(
                f"permutation must be int32 [{k}], the input feature of each stored column, but "
                f"got {describe(self.permutation)}; give one a column"
            )
        _check_input_scale(self)

    @property
    def weight_format(self) -> TensorFormat:
        """How the weight is stored, without the activation."""
        return QuantFormat.parse(self.format).weight

    @property
    def shape(self) -> tuple[int, int]:
        """(n, k): out_features, in_features."""
        n, k = self.codes.shape
        return int(n), int(k)

    @property
    def group_size(self) -> int:
        """Elements of k that share a scale; k itself where that is a whole row or more."""
        return self.weight_format.group_size or self.shape[1]

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that exist, by field."""
        found = {name: getattr(self, name) for name in FIELDS}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def dequantize(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """`w[n, k]` in the order of input features, computed in float64, then rounded to
        `dtype`."""
        out = torch.empty(self.shape, dtype=dtype, device=self.codes.device)
        for rows, values in self._parts():
            out[rows] = values
        return out

    def error(self, w: torch.Tensor) -> float:
        """Relative Frobenius error against the float weight `w[n, k]`; 0 where they are equal."""
        if tuple(w.shape) != self.shape:
            raise LayoutError(
                f"`w.shape == (n, k)` must hold, but got {list(w.shape)} for {list(self.shape)}; "
                "give the weight that was quantized"
            )
        missed, size = 0.0, 0.0
        for rows, values in self._parts():
            wanted = w[rows].detach().to(values.device, torch.float64)
            size += float(wanted.square().sum())
            missed += float(wanted.sub_(values).square_().sum())
        return math.sqrt(missed / size) if missed and size else math.inf if missed else 0.0

    def to(self, device: torch.device | str) -> QuantizedTensor:
        """The same tensor on `device`."""
        moved: dict[str, Any] = {name: t.to(device) for name, t in self.tensors.items()}
        return replace(self, **moved)

    def slice_rows(self, start: int, end: int) -> QuantizedTensor:
        """Output features `start .. end - 1`, exact; see slicing.py."""
        from humming.quantize.slicing import slice_rows  # it builds on this module

        return slice_rows(self, start, end)

    def slice_columns(self, start: int, end: int) -> QuantizedTensor:
        """Input features `start .. end - 1`, exact also inside a group; see slicing.py."""
        from humming.quantize.slicing import slice_columns

        return slice_columns(self, start, end)

    def row_scales_and_zeros(
        self, start: int, end: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scales and zero points of rows `start .. end - 1`, one row each, in their own types:
        [end - start, groups]."""
        weight = self.weight_format

        def rows(tensor: torch.Tensor) -> torch.Tensor:
            if weight.granularity == "tensor":
                return tensor.expand(end - start, 1)
            if weight.granularity != "block" or weight.group_size is None:
                return tensor[start:end]
            blocks = torch.arange(start, end, device=tensor.device) // weight.group_size
            return _bytewise(tensor).index_select(0, blocks).view(tensor.dtype)

        return rows(self.scales), None if self.zero_points is None else rows(self.zero_points)

    def check_numbers(self) -> None:
        """Raises LayoutError where a code is not one of its type, a scale is NaN or infinite, or
        `permutation` is none. Waits for the device."""
        from humming.quantize.numbers import check_numbers

        check_numbers(self)

    def _parts(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Runs of rows with their float64 values, features in order."""
        n, k = self.shape
        step = max(1, _ROWS_AT_ONCE_ELEMENTS // k)
        back = None if self.permutation is None else torch.argsort(self.permutation)
        for row in range(0, n, step):
            values = self._dequantized_rows(row, min(row + step, n))
            yield slice(row, row + step), values if back is None else values[:, back]

    def _dequantized_rows(self, start: int, end: int) -> torch.Tensor:
        values = decode(self.codes[start:end], self.weight_format.dtype, torch.float64)
        scales, zeros = self.row_scales_and_zeros(start, end)
        if zeros is not None:
            values = values - self._per_column(zeros)
        values = values * self._per_column(scales)
        if self.global_scales is not None:
            shared = self.global_scales.to(torch.float64).view(-1, 1)
            values = values * (shared if shared.shape[0] == 1 else shared[start:end])
        return values

    def _per_column(self, per_group: torch.Tensor) -> torch.Tensor:
        wide = per_group.to(torch.float64)
        if wide.shape[1] == 1:
            return wide
        return wide.repeat_interleave(self.group_size, dim=1)[:, : self.shape[1]]


def scale_shape(weight: TensorFormat, n: int, k: int) -> tuple[int, int]:
    """Shape of the scales, and of the zero points, of codes [n, k]."""
    if weight.granularity == "tensor":
        return 1, 1
    rows = weight.group_size if weight.granularity == "block" and weight.group_size else 1
    return -(-n // rows), weight.groups(k)


def describe(tensor: torch.Tensor) -> str:
    """Type and shape, for messages."""
    return f"{_name(tensor.dtype)} {list(tensor.shape)}"


def check_tensor(value: object, name: str, shape: str) -> None:
    """Raises LayoutError unless `value` is a tensor all of whose elements stand in memory; `name`
    and `shape` are the message's: what it is, and what it should be."""
    if not isinstance(value, torch.Tensor):
        raise LayoutError(
            f"{name} must be a tensor {shape}, but got {type(value).__name__}; make one with "
            "torch.as_tensor"
        )
    if value.layout is torch.strided and not (value.is_nested or value.is_quantized):
        return
    kind, way = str(value.layout).removeprefix("torch."), ".to_dense()"
    if value.is_nested:
        kind, way = "nested", ".to_padded_tensor()"
    elif value.is_quantized:
        kind, way = "quantized", ".dequantize()"
    raise LayoutError(
        f"{name} must be a dense tensor {shape}, but got a {kind} one; convert it with {way}"
    )


def _check_input_scale(q: QuantizedTensor) -> None:
    activation, scale = QuantFormat.parse(q.format).activation, q.input_scale
    if scale is None:
        return
    if activation is None or activation.dynamic:
        raise LayoutError(
            f"input_scale must be left out where x is not quantized by one scale, but got one for "
            f"'{q.format}'; name a static format such as 'fp8e4m3-fp8e4m3t'"
        )
    if tuple(scale.shape) != (1,) or scale.dtype != torch.float32:
        raise LayoutError(
            f"input_scale must be fp32 [1], but got {describe(scale)}; give the one scale of x"
        )


def _check_scales(q: QuantizedTensor, weight: TensorFormat, shape: tuple[int, int]) -> None:
    named = weight.scale_dtype
    legal = [name for name in SCALE_DTYPES.values() if named is None or name == named]
    if tuple(q.scales.shape) != shape or SCALE_DTYPES.get(q.scales.dtype) not in legal:
        raise LayoutError(
            f"scales of {q.format} codes {list(q.shape)} must be {' or '.join(legal)} "
            f"{list(shape)}, but got {describe(q.scales)}; give one scale a {weight.granularity}"
        )
    if weight.second_scale and q.global_scales is None:
        raise LayoutError(
            f"global_scales of format '{q.format}' must be fp32 [1] or [n], but got none; give the "
            "fp32 scale over all scales"
        )


def _check_zero_points(q: QuantizedTensor, weight: TensorFormat, shape: tuple[int, int]) -> None:
    zeros = q.zero_points
    if (zeros is None) != (weight.zero_point is None):
        raise LayoutError(
            f"zero_points go with formats of unsigned integers and only with those, but got "
            f"{'none' if zeros is None else describe(zeros)} for format '{q.format}'; "
            "name a format such as uint4g128z"
        )
    if zeros is None:
        return
    fits = zeros.dtype in WEIGHT_DTYPES
    if weight.zero_point == "int":
        fits = not (zeros.dtype.is_floating_point or zeros.dtype.is_complex)
    if tuple(zeros.shape) != shape or not fits:
        raise LayoutError(
            f"zero_points of {q.format} codes {list(q.shape)} must be {weight.zero_point} "
            f"{list(shape)}, but got {describe(zeros)}; give one a {weight.granularity}"
        )


def _bytewise(tensor: torch.Tensor) -> torch.Tensor:
    """8-bit floats as bytes: torch cannot index them everywhere."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
