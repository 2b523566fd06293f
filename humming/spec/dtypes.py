"""One table of data types: bits, range, codes per word, exponent and mantissa, names elsewhere. No
arithmetic here.

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
