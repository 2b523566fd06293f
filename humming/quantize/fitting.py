"""The scale, and zero point, by which the largest numbers of a unit meet the largest codes, and how
well a unit is met. Searching for better ones is clipping.py.

A unit is what shares one scale. Units come as one piece `[units, size]`, but a whole tensor, which
is one unit, in pieces `[rows, k]`. Numbers of a unit are `[units, 1]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from humming.quantize.tensor import SCALE_DTYPES
from humming.quantize.values import round_to_grid
from humming.spec.dtypes import dtype as named_dtype
from humming.spec.formats import TensorFormat
from humming.spec.layouts import row_scaled

Pieces = Sequence[torch.Tensor]
_TORCH_DTYPES = {name: dtype for dtype, name in SCALE_DTYPES.items()}


@dataclass(frozen=True)
class Fit:
    """Scales and zero points of units, [units, 1], with the values that they are stored with."""

    scale: torch.Tensor
    zero: torch.Tensor | None = None

    def where(self, better: torch.Tensor, other: Fit) -> Fit:
        """`self` where `better` holds, else `other`."""
        scale = torch.where(better, self.scale, other.scale)
        if self.zero is None or other.zero is None:
            return Fit(scale)
        return Fit(scale, torch.where(better, self.zero, other.zero))


class Fitter:
    """Fits units of one weight format whose free scales are stored as `dtype`.

    `top` is the second scale, by which all others are multiplied.
    """

    def __init__(
        self, weight: TensorFormat, dtype: torch.dtype, top: torch.Tensor | None = None
    ) -> None:
        self.weight = weight
        self.stored = weight.dtype
        self.scale_dtype = scale_dtype_of(weight, dtype)
        self.zero_dtype = torch.uint8 if weight.zero_point == "int" else self.scale_dtype
        self.is_one_unit = weight.granularity == "tensor"
        self.top = top

    def absmax(self, pieces: Pieces) -> Fit:
        """By the largest magnitude, or the range, of each unit."""
        low = wide(torch.cat([piece.amin(1, keepdim=True) for piece in pieces]))
        high = wide(torch.cat([piece.amax(1, keepdim=True) for piece in pieces]))
        if self.is_one_unit:
            low, high = low.amin(0, keepdim=True), high.amax(0, keepdim=True)
        if self.weight.zero_point:
            return self.of_range(low, high)
        if self.stored.name == "int1":  # its codes are 0 and -1: the scale carries the sign
            return Fit(self.rounded(torch.where(-low >= high, -low, -high)))
        magnitude = torch.maximum(high, -low)
        if self.scale_dtype == torch.float8_e8m0fnu:
            return Fit(_power_of_two(magnitude, self.stored.largest))
        return Fit(self.rounded(magnitude / self.stored.largest))

    def of_range(self, low: torch.Tensor, high: torch.Tensor) -> Fit:
        """By which `low` meets code 0 and `high` the largest one. Integer zero points need 0 to be
        a number of the range."""
        if self.weight.zero_point == "int":
            low, high = low.clamp_max(0), high.clamp_min(0)
        scale = self.rounded((high - low) / self.stored.largest)
        return Fit(scale, self.rounded_zero(-low / scale))

    def rounded(self, scale: torch.Tensor) -> torch.Tensor:
        """`scale` as it is stored, times the second scale: 1 for 0, and never less than the
        smallest that is divided by safely."""
        zero = scale == 0
        if self.top is not None:
            scale = scale / self.top
        info, size = torch.finfo(self.scale_dtype), scale.abs()
        least = info.smallest_normal if info.bits > 8 else 2.0**-9
        if self.scale_dtype == torch.float16:  # fp32 divides by its subnormals, which are whole
            step = info.smallest_normal * info.eps  # steps: the next lower one would clip too much
            size = torch.where(size < info.smallest_normal, (size / step).ceil() * step, size)
            least = step
        held = size.clamp(least, info.max).copysign(scale).to(self.scale_dtype)
        held = torch.where(zero, 1.0, held.to(scale.dtype))
        return held if self.top is None else held * self.top

    def rounded_zero(self, zero: torch.Tensor) -> torch.Tensor:
        """`zero` as it is stored."""
        if self.weight.zero_point == "int":
            return zero.round().clamp_(0, self.stored.largest)
        return zero.to(self.zero_dtype).to(zero.dtype)

    def on_grid(self, piece: torch.Tensor, fit: Fit) -> torch.Tensor:
        """The code values less the zero point, nearest to `piece`, in units of the scale."""
        values = round_to_grid(self.scaled(piece, fit), self.stored)
        return values if fit.zero is None else values.sub_(fit.zero)

    def scaled(self, piece: torch.Tensor, fit: Fit) -> torch.Tensor:
        """`piece` in units of the scale, plus the zero point."""
        scaled = wide(piece) / fit.scale
        if self.scale_dtype == torch.float8_e8m0fnu and self.stored.is_integer:
            scaled.clamp_min_(-self.stored.largest)  # so that a block and its negative are alike
        return scaled if fit.zero is None else scaled.add_(fit.zero)

    def error(self, pieces: Pieces, fit: Fit) -> torch.Tensor:
        """Squared error of each unit, fp64 [units, 1]."""
        missed = []
        for piece in pieces:
            left = torch.addcmul(wide(piece), self.on_grid(piece, fit), fit.scale, value=-1)
            norm = torch.linalg.vector_norm(left, dim=1, keepdim=True, dtype=left.dtype)
            missed.append(norm.to(torch.float64).square_())
        return self.summed(missed)

    def summed(self, of_pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """What was summed over each row of the pieces, as sums over units."""
        total = torch.cat(list(of_pieces))
        return total.sum(0, keepdim=True) if self.is_one_unit else total

    def held(self, fit: Fit) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scales and zero points in their types, flat."""
        scale = fit.scale if self.top is None else fit.scale / self.top
        zero = None if fit.zero is None else fit.zero.flatten().to(self.zero_dtype)
        return scale.flatten().to(self.scale_dtype), zero


def scale_dtype_of(weight: TensorFormat, dtype: torch.dtype) -> torch.dtype:
    """The type of a weight's scales: the format's, else that of the weight; fp32 of fp64, and of
    fp16 where a row has one scale, which is applied in fp32."""
    if weight.scale_dtype:
        return _TORCH_DTYPES[named_dtype(weight.scale_dtype).name]
    if dtype == torch.float64 or (dtype == torch.float16 and row_scaled(weight)):
        return torch.float32
    return dtype


def _power_of_two(magnitude: torch.Tensor, largest: float) -> torch.Tensor:
    """OCP MX v1.0: the power of two that brings `magnitude` into the type's last binade."""
    last = torch.frexp(torch.tensor(largest)).exponent
    exponent = (torch.frexp(magnitude).exponent - last).clamp_(-127, 127)
    return torch.where(magnitude == 0, 1.0, torch.ldexp(torch.ones_like(magnitude), exponent))


def wide(piece: torch.Tensor) -> torch.Tensor:
    """`piece` in the type that scales are computed in."""
    return piece if piece.dtype == torch.float64 else piece.to(torch.float32)
