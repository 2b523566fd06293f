"""QuantizedTensor: canonical codes and scales of a weight, and how to make one. No layouts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from humming.errors import FormatError, LayoutError
from humming.spec.formats import QuantFormat

SCALE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
QUANTIZE_FORMATS = ("int4g128",)
_ROWS_AT_ONCE_ELEMENTS = 1 << 22


@dataclass(frozen=True, eq=False)
class QuantizedTensor:
    """A weight `w[n, k] = (code - zero_point) * scale`, one code a byte, in no kernel's layout.

    codes        int8 (signed formats) or uint8 [n, k]
    scales       fp32, bf16 or fp16 [n, groups]; the last group along k may be ragged
    zero_points  None, or integer or float [n, groups]

    Raises LayoutError where a shape or dtype does not fit the format.
    """

    format: str
    codes: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None = None

    def __post_init__(self) -> None:
        weight = QuantFormat.parse(self.format).weight
        if self.codes.ndim != 2 or self.codes.dtype not in (torch.int8, torch.uint8):
            raise LayoutError(
                f"codes must be int8 or uint8 [n, k], but got {_describe(self.codes)}; "
                f"store one code a byte"
            )
        n, k = self.codes.shape
        expected = (n, weight.groups(k))
        if tuple(self.scales.shape) != expected or self.scales.dtype not in SCALE_DTYPES:
            raise LayoutError(
                f"scales of {self.format} codes [{n}, {k}] must be fp32, bf16 or fp16 "
                f"{list(expected)}, but got {_describe(self.scales)}; give one scale a group"
            )
        if self.zero_points is not None and tuple(self.zero_points.shape) != expected:
            raise LayoutError(
                f"zero_points of {self.format} codes [{n}, {k}] must have shape "
                f"{list(expected)}, but got {_describe(self.zero_points)}; give one a group"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, k): out_features, in_features."""
        n, k = self.codes.shape
        return int(n), int(k)

    @property
    def group_size(self) -> int:
        """Elements of k that share a scale; k itself where scales are per channel."""
        return QuantFormat.parse(self.format).weight.group_size or self.shape[1]

    def dequantize(self, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """`(code - zero_point) * scale` [n, k], computed in float64, then rounded to `dtype`."""
        codes = self.codes.to(torch.float64)
        if self.zero_points is not None:
            codes = codes - self._per_element(self.zero_points)
        return (codes * self._per_element(self.scales)).to(dtype)

    def error(self, w: torch.Tensor) -> float:
        """Relative Frobenius error against the float weight `w[n, k]`; 0 where they are equal."""
        reference = w.to(torch.float64)
        difference = float(torch.linalg.norm(self.dequantize() - reference))
        return difference / float(torch.linalg.norm(reference)) if difference else 0.0

    def to(self, device: torch.device | str) -> QuantizedTensor:
        """The same tensor on `device`."""
        zeros = None if self.zero_points is None else self.zero_points.to(device)
        return QuantizedTensor(self.format, self.codes.to(device), self.scales.to(device), zeros)

    def _per_element(self, per_group: torch.Tensor) -> torch.Tensor:
        wide = per_group.to(torch.float64).repeat_interleave(self.group_size, dim=1)
        return wide[:, : self.shape[1]]


def quantize(w: torch.Tensor, format: str = "int4g128") -> QuantizedTensor:
    """Quantizes `w[n, k]` (fp32, bf16 or fp16) by absmax per group and round-to-nearest-even.

    Scales have w's dtype and codes are rounded against the scale as stored. An all-zero group has
    scale 1. Deterministic. Raises FormatError for a format that does not run yet, LayoutError for
    another shape or dtype, or where `w` is not finite.
    """
    name = str(QuantFormat.parse(format))
    if name not in QUANTIZE_FORMATS:
        raise FormatError(
            f"quantize runs {', '.join(QUANTIZE_FORMATS)}, but got format '{format}', "
            f"which does not run yet; use {QUANTIZE_FORMATS[0]}"
        )
    if w.ndim != 2 or w.dtype not in SCALE_DTYPES or 0 in w.shape:
        raise LayoutError(
            f"a weight must be fp32, bf16 or fp16 [n, k] with `n >= 1` and `k >= 1`, "
            f"but got {_describe(w)}; convert or reshape it"
        )
    w = w.detach()
    if not w.is_meta and not bool(torch.isfinite(w).all()):
        raise LayoutError("`isfinite(w)` must hold, but got NaN or infinity; mend the weight first")
    rows = max(1, _ROWS_AT_ONCE_ELEMENTS // w.shape[1])
    parts = [_quantize_rows(w[row : row + rows], name) for row in range(0, w.shape[0], rows)]
    codes, scales = (torch.cat(column) for column in zip(*parts, strict=True))
    return QuantizedTensor(name, codes, scales)


def _quantize_rows(w: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    n, k = w.shape
    weight = QuantFormat.parse(name).weight
    low, high = weight.dtype.integer_range
    size, groups = weight.group_size or k, weight.groups(k)
    padded = torch.nn.functional.pad(w.to(torch.float32), (0, groups * size - k))
    grouped = padded.view(n, groups, size)
    absmax = grouped.abs().amax(dim=2)
    # A tiny group's scale must not underflow to zero: codes would divide by it.
    scales = (absmax / high).to(w.dtype).clamp_min(torch.finfo(w.dtype).smallest_normal)
    scales = torch.where(absmax == 0, torch.ones_like(scales), scales)
    codes = torch.round(grouped / scales.to(torch.float32).unsqueeze(2)).clamp_(low, high)
    return codes.to(torch.int8).view(n, groups * size)[:, :k].contiguous(), scales


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
