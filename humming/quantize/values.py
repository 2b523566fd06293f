"""What a code is worth, and the code nearest to a number: one table a type. No scales here.

Integers are their own values. A small float's code is its bit pattern in the low bits of a byte;
its table is spec/code_values.py.
"""

from __future__ import annotations

import torch

from humming.spec.code_values import value_table
from humming.spec.dtypes import DType

__all__ = ["decode", "encode", "round_to_grid", "value_table"]

_CODES_AT_ONCE = 1 << 22
_FP32_MANTISSA_BITS = 23


def decode(codes: torch.Tensor, stored: DType, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The values of `codes` (int8 of signed integers, else uint8) as `dtype`, exact in fp32 and
    fp64."""
    if stored.is_integer:
        return codes.to(dtype)
    table = torch.tensor(value_table(stored), dtype=dtype, device=codes.device)
    flat = codes.reshape(-1)
    out = torch.empty(flat.shape, dtype=dtype, device=codes.device)
    mask = (1 << stored.bits) - 1
    for start in range(0, flat.numel(), _CODES_AT_ONCE):  # indices are four times the codes
        part = flat[start : start + _CODES_AT_ONCE] & mask
        out[start : start + _CODES_AT_ONCE] = table.index_select(0, part.to(torch.int32))
    return out.view(codes.shape)


def round_to_grid(x: torch.Tensor, stored: DType) -> torch.Tensor:
    """The value of `stored` nearest to each finite `x` (fp32; fp64 for integers too), ties to even,
    saturating. What was in `x` is lost."""
    if stored.is_integer:
        low, high = stored.integer_range
        return x.round_().clamp_(low, high)
    x = x.to(torch.float32)
    # A sum with 2**(23 - mantissa_bits) times the binade of x rounds off the bits below the grid.
    binade = (x.abs().view(torch.int32) & 0x7F800000).view(torch.float32)
    binade = binade.clamp_min_(2.0 ** (1 - stored.exponent_bias))
    magic = binade.mul_(2.0 ** (_FP32_MANTISSA_BITS - stored.mantissa_bits)).copysign_(x)
    rounded = (x + magic).sub_(magic)
    return rounded.clamp_(-stored.largest, stored.largest)


def encode(x: torch.Tensor, stored: DType) -> torch.Tensor:
    """The codes of the nearest values, ties to even, saturating: int8 of signed integers, else
    uint8. Zero is coded without a sign. What was in `x` is lost."""
    on_grid = round_to_grid(x, stored)
    if stored.is_integer:
        return on_grid.to(torch.int8 if stored.kind == "int" else torch.uint8)
    # Of a normal value the code is the top of fp32's own pattern under another bias; a subnormal
    # is a multiple of the smallest value.
    magnitude = on_grid.abs()
    smallest_normal = 2.0 ** (1 - stored.exponent_bias)
    rebias = (127 - stored.exponent_bias) << stored.mantissa_bits
    normal = (magnitude.view(torch.int32) >> (_FP32_MANTISSA_BITS - stored.mantissa_bits)) - rebias
    subnormal = (magnitude * 2.0 ** (stored.exponent_bias - 1 + stored.mantissa_bits)).to(
        torch.int32
    )
    codes = torch.where(magnitude >= smallest_normal, normal, subnormal)
    return codes.add_((on_grid < 0).to(torch.int32) << (stored.bits - 1)).to(torch.uint8)
