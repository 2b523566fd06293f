"""Float weights to QuantizedTensor: for every weight format, by absmax or by searched clipping.

What a format's codes are worth is values.py; how a scale is searched is clipping.py. A weight is
taken apart into units, rows `[units, size]` that share one scale, some million elements at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from humming.errors import FormatError, LayoutError
from humming.quantize.clipping import searched
from humming.quantize.fitting import Fit, Fitter, scale_dtype_of
from humming.quantize.tensor import QuantizedTensor, check_tensor, describe, scale_shape
from humming.quantize.values import encode
from humming.spec.formats import QuantFormat, TensorFormat
from humming.spec.naming import did_you_mean

METHODS = ("absmax", "mse")
FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Types that a weight may have."""
_ELEMENTS_AT_ONCE = 1 << 17
"""Few enough for a core's cache to hold them while scales are tried."""
_ELEMENTS_ON_GPU = 1 << 24


def quantize(w: torch.Tensor, format: str = "int4g128", method: str = "absmax") -> QuantizedTensor:
    """Quantizes `w[n, k]` (fp32, bf16, fp16 or fp64) and rounds to the nearest code, ties to even.

    method "absmax" takes the scale by which a unit's largest magnitude (with zero points: its
    range) meets the largest code; e8m0 scales as OCP MX v1.0 says. method "mse" searches for the
    scale, and zero point, of the least squared error. Scales and float zero points have w's dtype
    (fp32 of fp64, and of fp16 where a row or tensor has one scale) unless the format names another,
    and codes are rounded against the scale as stored. An all-zero unit has scale 1. Deterministic;
    a unit does not depend on its neighbours, but for the second scale of nvfp4.

    Raises FormatError for an unknown format or method, LayoutError for another shape or dtype, or
    where `w` is not finite.
    """
    check_tensor(w, "w", "[n, k]")
    name = str(QuantFormat.parse(format))
    weight = QuantFormat.parse(format).weight
    check_method(method)
    check_weight(w)
    w = w.detach()
    if w.is_meta:
        return empty(name, w.shape[0], w.shape[1], w.dtype, w.device)
    with torch.no_grad():
        return _quantize(w, name, weight, method)


def check_weight(w: torch.Tensor) -> None:
    """Raises LayoutError unless `w` is a weight that `quantize` takes: floats [n, k], finite."""
    if w.ndim != 2 or w.dtype not in FLOATS or 0 in w.shape:
        raise LayoutError(
            f"a weight must be fp32, bf16 or fp16 [n, k] with `n >= 1` and `k >= 1`, "
            f"but got {describe(w)}; convert or reshape it"
        )
    if not w.is_meta and not bool(torch.isfinite(w).all()):
        raise LayoutError("`isfinite(w)` must hold, but got NaN or infinity; mend the weight first")


def check_method(method: str) -> None:
    """Raises FormatError unless `method` is one of METHODS."""
    if method not in METHODS:
        raise FormatError(
            f"method must be {' or '.join(METHODS)}, but got '{method}'"
            f"{did_you_mean(method, METHODS)}"
        )


def empty(
    format: str, n: int, k: int, dtype: torch.dtype, device: torch.device | str | None
) -> QuantizedTensor:
    """A weight [n, k] of zero bits, to be filled."""
    weight = QuantFormat.parse(format).weight
    kind = torch.int8 if weight.dtype.kind == "int" else torch.uint8
    shape = scale_shape(weight, n, k)
    scale_dtype = scale_dtype_of(weight, dtype)
    scales = torch.zeros(shape, dtype=torch.uint8 if weight.scale_dtype else dtype, device=device)
    zeros = None
    if weight.zero_point:
        zeros = torch.zeros(
            shape, dtype=torch.uint8 if weight.zero_point == "int" else dtype, device=device
        )
    return QuantizedTensor(
        format,
        torch.zeros(n, k, dtype=kind, device=device),
        scales.view(scale_dtype) if weight.scale_dtype else scales.to(scale_dtype),
        zeros,
        torch.zeros(1, dtype=torch.float32, device=device) if weight.second_scale else None,
    )


def _quantize(w: torch.Tensor, name: str, weight: TensorFormat, method: str) -> QuantizedTensor:
    top = _second_scale(w, weight) if weight.second_scale else None
    fitter = Fitter(weight, scale_dtype_of(weight, w.dtype), top)
    if weight.granularity == "tensor":
        parts = list(_row_parts(w, 1))
        fit = _fitted(fitter, parts, method)
        codes = torch.cat([encode(fitter.scaled(part, fit), fitter.stored) for part in parts])
        scales, zeros = fitter.held(fit)
        return QuantizedTensor(name, codes, scales.view(1, 1), zeros)
    rows = weight.group_size or 1 if weight.granularity == "block" else 1
    split = {"channel": _channels, "group": _groups, "block": _blocks}[weight.granularity]
    codes, scales, zeros = _joined([split(fitter, part, method) for part in _row_parts(w, rows)], 0)
    return QuantizedTensor(name, codes, scales, zeros, None if top is None else top.view(1))


_Part = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Codes, scales and zero points of some rows."""


def _channels(fitter: Fitter, part: torch.Tensor, method: str) -> _Part:
    fit = _fitted(fitter, [part], method)
    scales, zeros = fitter.held(fit)
    zeros = None if zeros is None else zeros.view(-1, 1)
    return encode(fitter.scaled(part, fit), fitter.stored), scales.view(-1, 1), zeros


def _groups(fitter: Fitter, part: torch.Tensor, method: str) -> _Part:
    n, k = part.shape
    size = fitter.weight.group_size or k
    full = k // size * size  # a ragged last group is a smaller unit, not one with zeros in it
    found: list[_Part] = []
    for columns, unit in ((part[:, :full], size), (part[:, full:], k - full)):
        if columns.shape[1]:
            codes, scales, zeros = _channels(fitter, columns.reshape(-1, unit), method)
            zeros = None if zeros is None else zeros.view(n, -1)
            found.append((codes.view(n, -1), scales.view(n, -1), zeros))
    return _joined(found, 1)


def _blocks(fitter: Fitter, part: torch.Tensor, method: str) -> _Part:
    n, k = part.shape
    size = fitter.weight.group_size or k
    padded = torch.nn.functional.pad(part, (0, -k % size, 0, -n % size))  # 0 is a value of floats
    rows, columns = padded.shape[0] // size, padded.shape[1] // size
    units = padded.view(rows, size, columns, size).transpose(1, 2).reshape(-1, size * size)
    codes, scales, _ = _channels(fitter, units, method)
    codes = codes.view(rows, columns, size, size).transpose(1, 2).reshape(padded.shape)
    return codes[:n, :k], scales.view(rows, columns), None


def _joined(parts: list[_Part], dim: int) -> _Part:
    codes = torch.cat([part[0] for part in parts], dim)
    scales = torch.cat([part[1] for part in parts], dim)
    zeros = [part[2] for part in parts if part[2] is not None]
    return codes, scales, torch.cat(zeros, dim) if zeros else None


def _fitted(fitter: Fitter, pieces: Sequence[torch.Tensor], method: str) -> Fit:
    return fitter.absmax(pieces) if method == "absmax" else searched(fitter, pieces)


def _row_parts(w: torch.Tensor, rows: int) -> Iterator[torch.Tensor]:
    """`w` in runs of rows, a multiple of `rows` each but for the last."""
    elements = _ELEMENTS_AT_ONCE if w.is_cpu else _ELEMENTS_ON_GPU
    step = max(1, elements // w.shape[1] // rows) * rows
    return (w[row : row + step] for row in range(0, w.shape[0], step))


def _second_scale(w: torch.Tensor, weight: TensorFormat) -> torch.Tensor:
    """By which the largest magnitude has the largest scale and the largest code; fp32 0-d."""
    low, high = w.aminmax()
    reach = torch.finfo(scale_dtype_of(weight, w.dtype)).max * weight.dtype.largest
    top = torch.maximum(high, -low).to(torch.float32) / reach
    return (
        top.clamp_min(torch.finfo(torch.float32).smallest_normal) if top else torch.ones_like(top)
    )
