"""Which weights may be multiplied with which activations, and why not the others. What a kernel
family can do today is legality/.

One principle: a product is made in the activation's type, so each value of the weight's type must
be one of that type, up to a power of two that the scale carries. Zero points are taken off the
sums, and half the range of unsigned codes with them: those count as signed ones. Activations of 16
and 32 bits take every weight: a value that they cannot hold is rounded once, and `rounds` says
where.
"""

from __future__ import annotations

import math
from functools import lru_cache

from humming.spec.code_values import finite_values
from humming.spec.dtypes import DType, dtype
from humming.spec.formats import QuantFormat


def why_not(format: str) -> str:
    """Why weights and activations of `format` cannot be multiplied, in one sentence; "" where they
    can."""
    quant = QuantFormat.parse(format)
    if quant.activation is None:
        return ""
    weight, activation = quant.weight.dtype, quant.activation.dtype
    lost = lost_value(weight, activation)
    if lost is None:
        return ""
    return (
        f"each value of {weight.name} must be one of {activation.name} up to a power of two, but "
        f"{lost:g} is not; use the weight with 16-bit activations, as in {quant.weight.name}"
    )


def rounds(weight: DType, activation: DType) -> bool:
    """Whether some value of `weight` is rounded in `activation`, a type of 16 or 32 bits."""
    return any(not _holds(activation, value) for value in finite_values(weight))


@lru_cache(maxsize=1024)
def lost_value(weight: DType, activation: DType) -> float | None:
    """A value of `weight` that `activation` lacks whatever power of two it is scaled by; None where
    it has them all."""
    if weight.kind == "uint":
        weight = dtype(f"int{weight.bits}")
    values = finite_values(weight)
    best: tuple[int, float] | None = None
    for power in sorted(range(-16, 17), key=abs):
        lost = [value for value in values if not _holds(activation, math.ldexp(value, power))]
        if not lost:
            return None
        if best is None or len(lost) < best[0]:
            best = len(lost), min(lost, key=abs)
    assert best is not None
    return best[1]


def _holds(stored: DType, value: float) -> bool:
    """Whether `value` is one of `stored`'s."""
    if stored.is_integer:
        low, high = stored.integer_range
        return value == int(value) and low <= value <= high
    if abs(value) > stored.largest:
        return False
    smallest = 1 - stored.exponent_bias
    exponent = max(math.frexp(value)[1] - 1, smallest) if value else smallest
    steps = math.ldexp(value, stored.mantissa_bits - exponent)
    return steps == int(steps)
