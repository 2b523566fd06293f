"""What a call makes of x where the format quantizes activations too: codes and scales a token, or a
token and group. Weights are quantizers.py; kernels do the same in their own prologue, or before it.

scale = absmax / largest and code = nearest(x / scale), ties to even, both in fp32 with true
divisions; a scale is at least 2^-126, fp32's smallest normal number, and a row or group of zeros
has scale 1. A static format has one scale, stored with the weight, for whatever comes: larger
numbers are cut to the largest. Scales that are powers of two are those of OCP MX v1.0. Of nvfp4 a
token has a scale by which its largest number is at the largest of both levels, and a group's is
rounded to fp8e4m3 under it. So a kernel that does the same gives the same codes.
"""

from __future__ import annotations

import torch

from humming.errors import FormatError
from humming.quantize.values import decode, encode, round_to_grid
from humming.spec.dtypes import dtype
from humming.spec.formats import TensorFormat

_LEAST = torch.finfo(torch.float32).tiny


def quantize_activations(
    x: torch.Tensor, activation: TensorFormat, scale: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [m, k] and fp32 scales [m, groups] of `x[m, k]` (any float type).

    Static activations have one `scale`, fp32 [1], that is stored with the weight. Raises
    FormatError where there is none.
    """
    if scale is None and not activation.dynamic:
        raise FormatError(
            f"activations of '{activation.name}' need the scale that is stored with the weight, "
            f"but there is none; give the weight an input_scale, or use {activation.dtype.name}"
        )
    m, k = x.shape
    groups = activation.groups(k)
    size = activation.group_size or k
    padded = torch.nn.functional.pad(x.to(torch.float32), (0, groups * size - k))
    grouped = padded.view(m, groups, size)
    if activation.dynamic or scale is None:
        scales = _scales(grouped.abs().amax(2, keepdim=True), activation)
    else:
        scales = scale.to(x.device, torch.float32).expand(m, groups)[:, :, None]
    quotients = grouped / scales
    if activation.dtype.is_integer:
        quotients.clamp_min_(-activation.dtype.largest)
    codes = encode(quotients, activation.dtype).view(m, groups * size)[:, :k]
    return codes.contiguous(), scales.view(m, groups)


def _scales(absmax: torch.Tensor, activation: TensorFormat) -> torch.Tensor:
    """fp32 scales of groups [m, groups, 1] by their largest magnitudes."""
    stored = activation.dtype
    largest = absmax.new_tensor(stored.largest)  # a tensor: torch multiplies by a number's inverse
    if activation.scale_dtype == "e8m0":
        last = int(stored.largest).bit_length()
        exponent = (torch.frexp(absmax).exponent - last).clamp_(-127, 127)
        made = torch.ldexp(torch.ones_like(absmax), exponent)
    elif activation.second_scale:
        under = dtype("fp8e4m3")
        row = absmax.amax(1, keepdim=True)
        second = (row / (largest * under.largest)).clamp_min(_LEAST)
        second = torch.where(row == 0, 1.0, second)
        held = round_to_grid((absmax / largest / second).clamp_min(2.0**-9), under)
        return torch.where(absmax == 0, 1.0, held) * second
    else:
        made = (absmax / largest).clamp_min(_LEAST)
    return torch.where(absmax == 0, 1.0, made)


def requantized(
    x: torch.Tensor,
    activation: TensorFormat | None,
    permutation: torch.Tensor | None = None,
    scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """float64 [m, k]: the activations that a product with `activation` multiplies; `x` itself where
    that is None. Groups are of columns as a weight with this `permutation` stores them; static ones
    have the weight's `scale`."""
    if activation is None:
        return x.to(torch.float64)
    if permutation is not None and activation.group_size is not None:
        order = permutation.to(torch.int64)
        gathered = requantized(x.index_select(1, order), activation)
        return torch.empty_like(gathered).index_copy_(1, order, gathered)
    codes, scales = quantize_activations(x, activation, scale)
    size = activation.group_size or x.shape[1]
    wide = scales.to(torch.float64).repeat_interleave(size, dim=1)[:, : x.shape[1]]
    return decode(codes, activation.dtype, torch.float64) * wide
