"""What a batch-invariant problem forbids each family: an order of sums that depends on m."""

from __future__ import annotations

from humming.spec.config import FAMILIES
from humming.spec.invariance import sum_order
from humming.spec.legality.rule import Rule, config_rule, problem_rule

_BY_TORCH = ("blas", "dequantize", "scaled_mm")


def _family_rule(family: str) -> Rule:
    return problem_rule(
        family,
        f"{family}_batch_invariance",
        lambda p, d: not p.batch_invariant,
        lambda p, d: (
            f"family '{family}' must not serve where batch invariance is asked for, as torch's "
            "matmul adds up in an order that depends on m; use another family"
        ),
    )


def _config_rule(family: str) -> Rule:
    return config_rule(
        family,
        f"{family}_batch_invariance",
        lambda c, p, d: not p.batch_invariant or sum_order(c) is not None,
        lambda c, p, d: (
            f"batch invariance needs an order of sums that does not depend on m, but '{c}' has "
            "none; use a config without stream_k"
        ),
    )


RULES: tuple[Rule, ...] = (
    *(_family_rule(family) for family in _BY_TORCH),
    *(_config_rule(family) for family in FAMILIES if family not in _BY_TORCH),
)
