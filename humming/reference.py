"""The oracle of tests, verification and examples: slow, plain, float64. Nothing here is served.

`out[m, n] = x[m, k] @ w[n, k].T + bias[n]` on the dequantized weights, and how far a kernel that
accumulates in fp32 and rounds once may be from it. Where the format quantizes activations, x is
quantized first, as every kernel of the format does.
"""

from __future__ import annotations

import math

import torch

from humming.errors import LayoutError
from humming.quantize.activations import requantized
from humming.quantize.tensor import QuantizedTensor
from humming.spec.formats import QuantFormat


def matmul_float64(
    x: torch.Tensor, q: QuantizedTensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """float64 [m, n] of `x[m, k]` (any float dtype) and the dequantized weight, plus `bias[n]`."""
    _check(x, q)
    out = _multiplied(x, q) @ q.dequantize().T
    return out if bias is None else out + bias.to(torch.float64)


def error_bound(
    x: torch.Tensor,
    q: QuantizedTensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
    steps: int | None = None,
) -> torch.Tensor:
    """float64 [m, n]: largest |error| of a right kernel that rounds `steps` times (default: k).

    `steps * 2^-24 * (|x| @ |w|.T + |bias|) + ulp / 2`; the ulp is that of `out_dtype` at the
    largest magnitude that the fp32 sum may reach, infinite where that may overflow `out_dtype`. NaN
    or infinite where x is not finite: there, compare NaN and infinity themselves, not a distance.
    """
    _check(x, q)
    steps = q.shape[1] if steps is None else steps
    magnitude = _multiplied(x, q).abs() @ q.dequantize().abs().T
    if bias is not None:
        magnitude = magnitude + bias.to(torch.float64).abs()
    accumulation = steps * 2.0**-24 * magnitude
    reach = matmul_float64(x, q, bias).abs() + accumulation
    return accumulation + half_ulp(reach, out_dtype)


def half_ulp(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the spacing of `dtype` at float64 `magnitude >= 0`; infinite where it would overflow."""
    info = torch.finfo(dtype)
    mantissa_bits = round(-math.log2(info.eps))
    floor = magnitude.clamp_min(info.smallest_normal)  # subnormals share one spacing
    exponent = torch.frexp(floor).exponent.to(torch.float64) - 1
    half = torch.exp2(exponent - mantissa_bits - 1)
    return torch.where(magnitude >= info.max * (1 + info.eps / 4), math.inf, half)


def _multiplied(x: torch.Tensor, q: QuantizedTensor) -> torch.Tensor:
    activation = QuantFormat.parse(q.format).activation
    return requantized(x, activation, q.permutation, q.input_scale)


def _check(x: torch.Tensor, q: QuantizedTensor) -> None:
    if x.ndim != 2 or x.shape[1] != q.shape[1]:
        raise LayoutError(
            f"`x.shape == (m, k)` must hold, but got x {list(x.shape)} for a weight {list(q.shape)}"
        )
