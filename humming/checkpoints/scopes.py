"""What shares a scale in a checkpoint, and weights of fp8 or signed integers with such scales.
How tools name and pack them is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from humming.checkpoints.stored import StoredModule
from humming.quantize.tensor import QuantizedTensor

FP8_NAMES = {torch.float8_e4m3fn: "fp8e4m3", torch.float8_e5m2: "fp8e5m2"}


@dataclass(frozen=True)
class Scope:
    """Rectangles of `rows` by `columns` weights share a scale, ragged at the edges; 0 means all."""

    rows: int = 1
    columns: int = 0

    def shape(self, n: int, k: int) -> tuple[int, int]:
        """Of the scales of a weight [n, k]."""
        return (
            -(-n // self.rows) if self.rows else 1,
            -(-k // self.columns) if self.columns else 1,
        )

    def laid(self, module: StoredModule, what: str, tensor: torch.Tensor, n: int, k: int) -> Scales:
        """`tensor`, called `what`, in its two dimensions, whatever dimensions of 1 tools add."""
        shape = self.shape(n, k)
        kept = tuple(size for size in tensor.shape if size != 1)
        if kept != tuple(size for size in shape if size != 1):
            raise module.fault(
                f"`{what}` of a weight [{n}, {k}] must be {list(shape)}",
                list(tensor.shape),
                "the config's strategy or sizes are not those of the file",
            )
        return tensor.reshape(shape)

    def of_integers(self) -> str:
        """The end of an integer format's name; such formats have neither tensors nor blocks, and
        `per_row` gives their scales."""
        return f"g{self.columns}" if self.columns else ""

    def of_floats(self) -> str:
        """The end of a float format's name."""
        if not self.rows and not self.columns:
            return "t"
        if self.rows > 1 and self.rows == self.columns:
            return f"b{self.rows}"
        return self.of_integers()

    def per_row(self, scales: Scales, n: int) -> Scales:
        """`scales` with one row for each of `n`."""
        if self.rows == 1:
            return scales.contiguous()
        rows = self.rows or n
        if scales.element_size() == 1:
            repeated = scales.view(torch.uint8).repeat_interleave(rows, dim=0)
            return repeated[:n].contiguous().view(scales.dtype)
        return scales.repeat_interleave(rows, dim=0)[:n].contiguous()


Scales = torch.Tensor
"""[rows, columns] as `Scope.shape` says."""

TENSOR = Scope(0, 0)
CHANNEL = Scope(1, 0)


def fp8_weight(
    module: StoredModule, weight: torch.Tensor, scales: torch.Tensor, scope: Scope, what: str
) -> QuantizedTensor:
    """fp8 `weight` [n, k] times `scales`, the tensor called `what`, of `scope`."""
    n, k = weight.shape
    end = scope.of_floats()
    laid = scope.laid(module, what, scales, n, k)
    if end[:1] in ("", "g"):
        laid = scope.per_row(laid, n)
    check_fp8(module, weight)
    name = FP8_NAMES[weight.dtype]
    return module.checked(QuantizedTensor(f"{name}{end}", weight.view(torch.uint8), laid))


def signed_weight(
    module: StoredModule,
    codes: torch.Tensor,
    scales: torch.Tensor,
    scope: Scope,
    what: str,
    bits: int,
    zero_points: torch.Tensor | None = None,
    said: bool = False,
) -> QuantizedTensor:
    """int8 `codes` [n, k] of `bits` bits times `scales`, the tensor called `what`, of `scope`.

    `zero_points` int8 of the scales' shape are subtracted from codes; then both are moved to the
    unsigned range, unless all are 0: of meta tensors `said` says whether they are.
    """
    n, k = codes.shape
    _check_range(module, codes, bits)
    laid = scope.per_row(scope.laid(module, what, scales, n, k), n)
    end = scope.of_integers()
    if zero_points is None or (said if zero_points.is_meta else not bool(zero_points.any())):
        return module.checked(QuantizedTensor(f"int{bits}{end}", codes, laid))
    zeros = scope.per_row(scope.laid(module, "zero points", zero_points, n, k), n)
    middle = 1 << (bits - 1)
    weight = QuantizedTensor(
        f"uint{bits}{end}z", _unsigned(codes, middle), laid, _unsigned(zeros, middle)
    )
    return module.checked(weight)


def check_fp8(module: StoredModule, weight: torch.Tensor) -> None:
    """Raises CheckpointError where fp8 `weight` holds NaN or infinity."""
    if weight.is_meta:
        return
    bits = weight.view(torch.uint8) & 0x7F
    spoilt = bits == 0x7F if weight.dtype == torch.float8_e4m3fn else bits >= 0x7C
    if bool(spoilt.any()):
        raise module.fault(
            "`weight` must be finite", "NaN or infinity", "the file is damaged or its model was"
        )


def _check_range(module: StoredModule, codes: torch.Tensor, bits: int) -> None:
    if codes.is_meta or bits == 8:
        return
    low, high = int(codes.min()), int(codes.max())
    if low < -(1 << (bits - 1)) or high >= 1 << (bits - 1):
        raise module.fault(
            f"codes must fit {bits} bits", f"{low} .. {high}", "the config's num_bits is not theirs"
        )


def _unsigned(codes: torch.Tensor, middle: int) -> torch.Tensor:
    return (codes.to(torch.int16) + middle).to(torch.uint8)
