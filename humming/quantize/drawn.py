"""A random weight of any format, to check kernels with: codes over their whole range, scales over a
binade and more. No quantizing."""

from __future__ import annotations

import torch

from humming.quantize.quantizers import empty
from humming.quantize.tensor import QuantizedTensor
from humming.quantize.values import value_table
from humming.spec.formats import QuantFormat


def drawn(
    format: str,
    n: int,
    k: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float32,
    act_order: bool = False,
) -> QuantizedTensor:
    """A weight [n, k] on the generator's device whose largest numbers are some tenths.

    Free scales have `dtype`. Every finite code occurs alike; `act_order` shuffles the columns.
    """
    device = generator.device
    weight = QuantFormat.parse(format).weight
    blank = empty(format, n, k, dtype, device)

    def uniform(shape: torch.Size) -> torch.Tensor:
        return torch.rand(shape, generator=generator, device=device)

    table = torch.tensor(value_table(weight.dtype))
    finite = torch.isfinite(table).nonzero().flatten().to(device)
    picked = torch.randint(len(finite), (n, k), generator=generator, device=device)
    codes = finite[picked].to(torch.uint8)
    if weight.dtype.kind == "int":
        codes = _signed(codes, weight.dtype.bits)
    size = (uniform(blank.scales.shape) + 0.25) * (7 / 64 / weight.dtype.largest)
    shared, zeros = blank.global_scales, blank.zero_points
    if shared is not None:
        shared = (uniform(shared.shape) + 0.5) / 256
        size = size * 256
    if weight.scale_dtype == "e8m0":
        size = torch.exp2(torch.log2(size).round())
    if zeros is not None:
        middle = uniform(zeros.shape) * weight.dtype.largest
        zeros = (middle.round() if weight.zero_point == "int" else middle).to(zeros.dtype)
    order = None
    if act_order:
        order = torch.randperm(k, generator=generator, device=device).to(torch.int32)
    activation, fixed = QuantFormat.parse(format).activation, None
    if activation is not None and not activation.dynamic:
        fixed = torch.full((1,), 4 / activation.dtype.largest, device=device)
    return QuantizedTensor(format, codes, size.to(blank.scales.dtype), zeros, shared, order, fixed)


def _signed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    half = 1 << (bits - 1)
    return ((codes ^ half).to(torch.int16) - half).to(torch.int8)
