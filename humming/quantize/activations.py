"""What a call makes of x where the format quantizes activations too: codes and scales a token, or a
token and group. Weights are quantizers.py; kernels do the same in their own prologue.

scale = absmax / largest and code = nearest(x / scale), ties to even, both in fp32 with true
divisions; a scale is at least 2^-126, fp32's smallest normal number, and a row or group of zeros
has scale 1. So a kernel that does the same gives the same codes.
"""

from __future__ import annotations

import torch

from humming.errors import FormatError
from humming.quantize.values import decode, encode
from humming.spec.formats import TensorFormat


def quantize_activations(
    x: torch.Tensor, activation: TensorFormat
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [m, k] and fp32 scales [m, groups] of `x[m, k]` (any float type).

    Raises FormatError where the scale is not made in the call but stored with the weight.
    """
    if not activation.dynamic or activation.scale_dtype:
        raise FormatError(
            f"activations must be quantized a token, or a token and group, but got "
            f"'{activation.name}', whose scales are elsewhere; use {activation.dtype.name}"
        )
    m, k = x.shape
    groups = activation.groups(k)
    size = activation.group_size or k
    padded = torch.nn.functional.pad(x.to(torch.float32), (0, groups * size - k))
    grouped = padded.view(m, groups, size)
    absmax = grouped.abs().amax(2, keepdim=True)
    scales = (absmax / activation.dtype.largest).clamp_min(torch.finfo(torch.float32).tiny)
    scales = torch.where(absmax == 0, 1.0, scales)
    codes = encode(grouped / scales, activation.dtype).view(m, -1)[:, :k]
    return codes.contiguous(), scales.view(m, groups)


def requantized(x: torch.Tensor, activation: TensorFormat | None) -> torch.Tensor:
    """float64 [m, k]: the activations that a product with `activation` multiplies; `x` itself where
    that is None."""
    if activation is None:
        return x.to(torch.float64)
    codes, scales = quantize_activations(x, activation)
    size = activation.group_size or x.shape[1]
    wide = scales.to(torch.float64).repeat_interleave(size, dim=1)[:, : x.shape[1]]
    return decode(codes, activation.dtype, torch.float64) * wide
