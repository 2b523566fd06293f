"""Problem: what is to be computed, and so what a tuned config is looked up by. How it is computed
is config.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from humming.errors import LegalityError
from humming.spec.canonical import content_hash
from humming.spec.dtypes import FLOAT_ACTIVATIONS, dtype
from humming.spec.formats import QuantFormat
from humming.spec.layouts import row_scaled

M_END = 2**31
"""Tuned intervals of m lie in [0, M_END)."""


@dataclass(frozen=True)
class Problem:
    """`out[m, n] = x[m, k] @ w[n, k].T (+ bias[n])`, or the same for each token's experts.

    `op` is "dense" or "moe". `activation_dtype` and `output_dtype` are the module's float types
    ("fp16", "bf16", "fp32"); quantized activations are named by `format`. `layout` names how the
    weight is packed. `routing` describes how tokens fall on experts ("uniform", "zipf1.2", or a
    histogram's hash).
    """

    format: str
    n: int
    k: int
    m: int
    activation_dtype: str = "bf16"
    output_dtype: str = "bf16"
    layout: str = "cpu_n16k8"
    op: str = "dense"
    bias: bool = False
    batch_invariant: bool = False
    act_order: bool = False
    experts: int | None = None
    top_k: int | None = None
    routing: str | None = None

    def __post_init__(self) -> None:
        QuantFormat.parse(self.format)
        if self.op not in ("dense", "moe"):
            raise LegalityError(f"op must be 'dense' or 'moe', but got '{self.op}'")
        if self.n < 1 or self.k < 1 or not 0 <= self.m < M_END:
            raise LegalityError(
                f"`n >= 1`, `k >= 1` and `0 <= m < 2**31` must hold, but got n={self.n}, "
                f"k={self.k}, m={self.m}"
            )
        for field in ("activation_dtype", "output_dtype"):
            value = getattr(self, field)
            if value not in FLOAT_ACTIVATIONS:
                raise LegalityError(f"{field} must be fp16, bf16 or fp32, but got '{value}'")

    @cached_property
    def quant(self) -> QuantFormat:
        """The parsed format."""
        return QuantFormat.parse(self.format)

    @cached_property
    def id(self) -> str:
        """Content hash of all fields, m included."""
        return content_hash(self)

    @cached_property
    def layer_id(self) -> str:
        """Content hash of all fields but m: what one module asks for over all its calls."""
        return content_hash(replace(self, m=0))

    @property
    def least_bytes(self) -> int:
        """Bytes that one call of a dense problem must move: codes, scales and zero points once
        (fp32 in a CPU's layout, else 16 bits; fp32 a row), x, its order and out once."""
        weight = self.quant.weight
        scale_bytes = 4 if self.layout.startswith("cpu") else 2
        groups = 0 if row_scaled(weight) else weight.groups(self.k)
        stored = -(-self.k * weight.dtype.bits // 8)
        stored += scale_bytes * groups * (2 if weight.zero_point else 1)
        stored += 4 if row_scaled(weight) or weight.second_scale else 0
        x_bytes = self.k * dtype(self.activation_dtype).bits // 8
        out_bytes = self.n * dtype(self.output_dtype).bits // 8
        order_bytes = 4 * self.k if self.act_order else 0
        return self.n * stored + order_bytes + self.m * (x_bytes + out_bytes)

    def at(self, m: int) -> Problem:
        """The same layer at another number of tokens."""
        return self if m == self.m else replace(self, m=m)
