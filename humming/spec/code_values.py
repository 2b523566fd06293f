"""What each code of a type is worth, as plain numbers. Tensors of codes are quantize/values.py."""

from __future__ import annotations

import math
from functools import lru_cache

from humming.spec.dtypes import DType


@lru_cache(maxsize=64)
def value_table(stored: DType) -> tuple[float, ...]:
    """The value of each code `0 .. 2**bits - 1`: of its bit pattern for floats, of its two's
    complement for signed integers. NaN and infinity as `stored.specials` says."""
    codes = range(1 << stored.bits)
    if stored.kind == "uint":
        return tuple(float(code) for code in codes)
    if stored.kind == "int":
        return tuple(float(code - ((code >> (stored.bits - 1)) << stored.bits)) for code in codes)
    return tuple(_float_value(code, stored) for code in codes)


def finite_values(stored: DType) -> tuple[float, ...]:
    """The numbers among the values of `stored`, each once, rising."""
    return tuple(sorted({value for value in value_table(stored) if math.isfinite(value)}))


def _float_value(code: int, stored: DType) -> float:
    exponent_ones = (1 << stored.exponent_bits) - 1
    mantissa_ones = (1 << stored.mantissa_bits) - 1
    sign = -1.0 if code >> (stored.bits - 1) else 1.0
    exponent, mantissa = code >> stored.mantissa_bits & exponent_ones, code & mantissa_ones
    if stored.specials == "ieee" and exponent == exponent_ones:
        return math.nan if mantissa else sign * math.inf
    if stored.specials == "nan" and (exponent, mantissa) == (exponent_ones, mantissa_ones):
        return math.nan
    whole = mantissa / (1 << stored.mantissa_bits) + (exponent > 0)
    return sign * whole * 2.0 ** (max(exponent, 1) - stored.exponent_bias)
