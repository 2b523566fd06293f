"""One table of data types: bits, range, codes per word, exponent and mantissa, names elsewhere. No
arithmetic on tensors here: what a code is worth is quantize/values.py.

A float of 3 to 8 bits has a sign, `exponent_bits` under a bias of `2**(exponent_bits - 1) - 1`, and
subnormals where the exponent's bits are 0. Which codes are no numbers is `specials`:

    "none"  every code is finite: all floats of up to 7 bits, and those of 8 but for the next two
    "nan"   the largest magnitude's code is NaN, no infinity: fp8e4m3, known as e4m3fn
    "ieee"  all exponent bits set are infinity or NaN: fp8e5m2, and the types of 16 and 32 bits

e8m0 is `2**(byte - 127)`, and 255 is NaN.

Sources: OCP Microscaling Formats (MX) v1.0 for e8m0, fp4e2m1, fp6 and the fp8 pair; IEEE 754 for
fp16 and fp32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from humming.errors import FormatError


@dataclass(frozen=True)
class DType:
    """A stored type. `kind` is "int" (two's complement range), "uint", "float" or "scale" (exponent
    only)."""

    name: str
    bits: int
    kind: str
    exponent_bits: int = 0
    mantissa_bits: int = 0
    torch_name: str | None = None

    @property
    def codes_per_word(self) -> int:
        """How many codes fit a 32-bit word without one straddling two words."""
        return 32 // self.bits

    @property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self.kind == "int":
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        if self.kind == "uint":
            return 0, (1 << self.bits) - 1
        raise FormatError(f"integer_range needs an integer type, but got {self.name}")

    @property
    def is_integer(self) -> bool:
        """Whether codes are whole numbers."""
        return self.kind in ("int", "uint")

    @property
    def specials(self) -> str:
        """Which codes of a float are no numbers: "none", "nan" or "ieee"."""
        if self.name == "fp8e4m3":
            return "nan"
        return "ieee" if self.name == "fp8e5m2" or self.bits > 8 else "none"

    @property
    def exponent_bias(self) -> int:
        """What is taken off a float's stored exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """The largest finite value; of int1, whose codes are 0 and -1, the largest magnitude."""
        if self.is_integer:
            return float(self.integer_range[1] or 1)
        if self.kind == "scale":
            return 2.0**127
        exponent = (1 << self.exponent_bits) - 1 - (self.specials == "ieee")
        below = (
            2 if self.specials == "nan" else 1
        )  # in units of the last place, from the next power
        fraction = 2.0 - below / (1 << self.mantissa_bits)
        return fraction * 2.0 ** (exponent - self.exponent_bias)


_NAMED = {
    d.name: d
    for d in (
        DType("fp32", 32, "float", 8, 23, "float32"),
        DType("bf16", 16, "float", 8, 7, "bfloat16"),
        DType("fp16", 16, "float", 5, 10, "float16"),
        DType("fp8e4m3", 8, "float", 4, 3, "float8_e4m3fn"),
        DType("fp8e5m2", 8, "float", 5, 2, "float8_e5m2"),
        DType("fp6e2m3", 6, "float", 2, 3),
        DType("fp6e3m2", 6, "float", 3, 2),
        DType("fp4e2m1", 4, "float", 2, 1),
        DType("e8m0", 8, "scale", 8, 0, "float8_e8m0fnu"),
        *(DType(f"int{b}", b, "int", torch_name="int8" if b == 8 else None) for b in range(1, 9)),
        *(
            DType(f"uint{b}", b, "uint", torch_name="uint8" if b == 8 else None)
            for b in range(1, 9)
        ),
    )
}
_FLOAT = re.compile(r"fp(\d+)e(\d+)m(\d+)$")


@lru_cache(maxsize=256)
def dtype(name: str) -> DType:
    """The type called `name`: `int1`..`int8`, `uint1`..`uint8`, `fp16`, `bf16`, `fp32`, `e8m0`,
    `fp<bits>e<E>m<M>`.

    Raises FormatError where the name is unknown or 1 + E + M is not the number of bits.
    """
    if name in _NAMED:
        return _NAMED[name]
    match = _FLOAT.match(name)
    if not match:
        raise FormatError(
            "a data type must be int1-8, uint1-8, fp16, bf16, fp32, e8m0 or fp<bits>e<E>m<M>, but "
            f"got '{name}'"
        )
    bits, exponent, mantissa = (int(g) for g in match.groups())
    if 1 + exponent + mantissa != bits or not 3 <= bits <= 8 or exponent < 1:
        raise FormatError(
            f"`1 + e + m == bits`, `3 <= bits <= 8` and `e >= 1` must hold for a small float, "
            f"but got '{name}'; write for example fp6e3m2"
        )
    return DType(name, bits, "float", exponent, mantissa)


FLOAT_ACTIVATIONS = ("fp16", "bf16", "fp32")
"""Activation types that a module may hold when the format does not name an activation."""
