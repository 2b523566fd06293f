"""In which 8-bit type tensor cores multiply a format whose activations are quantized, and from
which GPU on. Which weights go with which activations at all is combinations.py.

A format that has no carrier, or whose carrier a GPU cannot multiply, is multiplied in 16 bits:
activations are rounded to their codes and back first.
"""

from __future__ import annotations

from functools import lru_cache

from humming.spec.combinations import lost_value
from humming.spec.dtypes import DType, dtype
from humming.spec.formats import QuantFormat, TensorFormat

CARRIERS: dict[str, tuple[int, int]] = {"int8": (7, 5), "fp8e4m3": (8, 9), "fp8e5m2": (8, 9)}
"""Type -> the compute capability from which on tensor cores multiply it."""

STEP_K = 32
"""Columns of one product in 8 bits: groups are whole numbers of them."""

_BLOCK_SCALED = ("mxfp4-mxfp4", "nvfp4-nvfp4")
_BLOCK_SCALED_ON = ((12, 0), (12, 1))

_ZERO_POINT_BITS = {"int8": 7, "fp8e4m3": 4, "fp8e5m2": 3}
"""Bits of a code whose difference to any zero point the carrier holds."""


def native(format: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU of `capability` multiplies `format`'s codes of x and w as they are."""
    held = carrier(format)
    able = held is not None and capability >= CARRIERS[held]
    return able or takes_scales_along(format, capability)


def block_scaled(format: str) -> bool:
    """Whether some tensor cores multiply codes of 4 bits of both and take their groups' scales
    along."""
    return format in _BLOCK_SCALED


def takes_scales_along(format: str, capability: tuple[int, int]) -> bool:
    """Whether those of a GPU of `capability` do."""
    return block_scaled(format) and capability in _BLOCK_SCALED_ON


@lru_cache(maxsize=1024)
def carrier(format: str) -> str | None:
    """The type, a key of CARRIERS, that holds the codes of x and of w in `format`; None where none
    does, or activations are not quantized."""
    quant = QuantFormat.parse(format)
    if quant.activation is None or not _activation_fits(quant.activation):
        return None
    held = (name for name in CARRIERS if _holds(dtype(name), quant.activation.dtype))
    return next((name for name in held if _weight_fits(quant.weight, name)), None)


def carrier_of(activation: TensorFormat) -> str | None:
    """The type that holds the codes of x whatever the weight is; None where none does."""
    return next((name for name in CARRIERS if _holds(dtype(name), activation.dtype)), None)


def _activation_fits(activation: TensorFormat) -> bool:
    whole = activation.group_size is None or activation.group_size % STEP_K == 0
    return whole and not activation.second_scale


def _weight_fits(weight: TensorFormat, name: str) -> bool:
    if weight.group_size is not None and weight.group_size % STEP_K:
        return False
    if weight.zero_point is not None:
        return weight.zero_point == "int" and weight.dtype.bits <= _ZERO_POINT_BITS[name]
    held, stored = dtype(name), weight.dtype
    if stored.is_integer or held.is_integer:
        return stored.is_integer and lost_value(stored, held) is None
    return _holds(held, stored)


def _holds(held: DType, stored: DType) -> bool:
    """Whether `stored`'s bits, its exponent's the lowest ones, are a number of `held` each."""
    if held.is_integer or stored.is_integer:
        return held.is_integer and stored.kind == "int"
    if stored.name == held.name:
        return True
    spare = held.exponent_bits - (held.specials == "ieee")
    return stored.exponent_bits <= spare and stored.mantissa_bits <= held.mantissa_bits
