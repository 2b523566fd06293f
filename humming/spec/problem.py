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
from humming.spec.routing import check_routing, picked_of

M_END = 2**31
"""Tuned intervals of m lie in [0, M_END)."""


@dataclass(frozen=True)
class Problem:
    """`out[m, n] = x[m, k] @ w[n, k].T (+ bias[n])`, or the same for each token's experts.

    `op` is "dense" or "moe". `activation_dtype` and `output_dtype` are the module's float types
    ("fp16", "bf16", "fp32"); quantized activations are named by `format`. `layout` names how the
    weight is packed. Of "moe" m counts tokens, each goes to `top_k` of `experts`, and `routing`
    names how they fall on them, as routing.py says.
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
        self._check_experts()

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
        """Bytes that one call must move: codes, scales and zero points once (fp32 in a CPU's
        layout, else 16 bits; fp32 a row), x, its order and out once. Of experts those that are met,
        as may be expected."""
        weight = self.quant.weight
        scale_bytes = 4 if self.layout.startswith("cpu") else 2
        groups = 0 if row_scaled(weight) else weight.groups(self.k)
        stored = -(-self.k * weight.dtype.bits // 8)
        stored += scale_bytes * groups * (2 if weight.zero_point else 1)
        stored += 4 if row_scaled(weight) or weight.second_scale else 0
        x_bytes = self.k * dtype(self.activation_dtype).bits // 8
        out_bytes = self.n * dtype(self.output_dtype).bits // 8
        order_bytes = 4 * self.k if self.act_order else 0
        if self.op == "moe":
            weights = self.experts_met * (self.n * stored + order_bytes)
            return round(weights + self.m * x_bytes + self.pairs * out_bytes)
        return self.n * stored + order_bytes + self.m * (x_bytes + out_bytes)

    @property
    def rows_of_expert(self) -> int:
        """Rows of an expert that is met, in the mean; m itself where there are no experts."""
        if self.op == "dense":
            return self.m
        return max(1, round(self.pairs / max(self.experts_met, 1.0)))

    @property
    def experts_met(self) -> float:
        """How many experts get a token at all, as may be expected of the routing."""
        if self.op == "dense":
            return 1.0
        chances = picked_of(self.routing or "", self.experts or 1, self.top_k or 1)
        return sum(1.0 - (1.0 - chance) ** self.m for chance in chances)

    def _check_experts(self) -> None:
        given = (self.experts, self.top_k, self.routing)
        if self.op == "dense" and given != (None, None, None):
            raise LegalityError(
                "a dense problem has no experts, top_k or routing, but got "
                f"{', '.join(map(str, given))}; use op 'moe'"
            )
        if self.op == "moe":
            if not (self.experts or 0) >= 1 or not (self.top_k or 0) >= 1:
                raise LegalityError(
                    "`experts >= 1` and `top_k >= 1` must hold for op 'moe', but got "
                    f"experts={self.experts}, top_k={self.top_k}"
                )
            check_routing(self.routing or "")

    @property
    def pairs(self) -> int:
        """Rows that are multiplied in all: each token once, or once for each of its experts."""
        return self.m * (self.top_k or 1)

    def at(self, m: int) -> Problem:
        """The same layer at another number of tokens."""
        return self if m == self.m else replace(self, m=m)
