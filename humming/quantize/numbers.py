"""Whether the numbers of a QuantizedTensor can be right: what a file from elsewhere may get wrong.
Shapes and types are checked where the tensor is made."""

from __future__ import annotations

import torch

from humming.errors import LayoutError
from humming.quantize.tensor import QuantizedTensor


def check_numbers(q: QuantizedTensor) -> None:
    """Raises LayoutError, naming the tensor, where a code is not one of its type, a scale or float
    zero point is NaN or infinite, an integer zero point is not in 0 .. 255, or `permutation` is not
    a permutation. Waits for the device."""
    _check_codes(q)
    check_around_codes(q)


def check_around_codes(q: QuantizedTensor) -> None:
    """As `check_numbers`, of all but the codes, which are most of a weight. Those on meta pass."""
    if q.codes.is_meta:
        return
    for name in ("scales", "zero_points", "global_scales", "input_scale"):
        tensor = q.tensors.get(name)
        if tensor is not None and not bool(torch.isfinite(tensor.to(torch.float32)).all()):
            raise LayoutError(
                f"`isfinite({name})` must hold, but got NaN or infinity; the weight is damaged, "
                "quantize it anew"
            )
    if q.weight_format.zero_point == "int" and q.zero_points is not None:
        low, high = (int(edge) for edge in q.zero_points.aminmax())
        if low < 0 or high > 255:
            raise LayoutError(
                f"`0 <= zero_points <= 255` must hold, but got {low} .. {high}; shift codes and "
                "zero points alike"
            )
    _check_permutation(q)


def _check_codes(q: QuantizedTensor) -> None:
    stored = q.weight_format.dtype
    low, high = stored.integer_range if stored.is_integer else (0, (1 << stored.bits) - 1)
    least, most = (int(edge) for edge in q.codes.aminmax())
    if least < low or most > high:
        raise LayoutError(
            f"codes of {stored.name} must be in {low} .. {high}, but got {least} .. {most}; the "
            "weight is damaged, or of another format"
        )


def _check_permutation(q: QuantizedTensor) -> None:
    if q.permutation is None:
        return
    ordered = torch.sort(q.permutation).values
    if not torch.equal(ordered, torch.arange(q.shape[1], device=ordered.device, dtype=torch.int32)):
        raise LayoutError(
            f"permutation must hold each of 0 .. {q.shape[1] - 1} once, but does not; give the "
            "input feature of each stored column"
        )
