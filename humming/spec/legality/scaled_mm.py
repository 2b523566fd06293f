"""What the scaled_mm family (torch's own product of fp8 by fp8, with a scale a row of each) can run
on a device."""

from __future__ import annotations

from humming.spec.carriers import carrier
from humming.spec.layouts import CUDA_A8_LAYOUT, row_scaled
from humming.spec.legality.cuda import capability, problem_rules
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

LEAST_CAPABILITY = (9, 0)


def _takes(problem: Problem) -> bool:
    weight, activation = problem.quant.weight, problem.quant.activation
    if activation is None or carrier(problem.format) != "fp8e4m3":
        return False
    same = weight.dtype.name == activation.dtype.name == "fp8e4m3"
    return same and row_scaled(weight) and activation.group_size is None


RULES: tuple[Rule, ...] = (
    *(
        rule
        for rule in problem_rules("scaled_mm")
        if rule.name in ("scaled_mm_device", "scaled_mm_op")
    ),
    problem_rule(
        "scaled_mm",
        "scaled_mm_capability",
        lambda p, d: capability(d) >= LEAST_CAPABILITY,
        lambda p, d: (
            f"family 'scaled_mm' needs compute capability {'.'.join(map(str, LEAST_CAPABILITY))} "
            f"or newer, but '{d.name}' has {'.'.join(map(str, capability(d)))}"
        ),
    ),
    problem_rule(
        "scaled_mm",
        "scaled_mm_layout",
        lambda p, d: p.layout == CUDA_A8_LAYOUT,
        lambda p, d: (
            f"family 'scaled_mm' reads layout '{CUDA_A8_LAYOUT}', but got '{p.layout}'; repack the "
            "layer"
        ),
    ),
    problem_rule(
        "scaled_mm",
        "scaled_mm_activations",
        lambda p, d: p.activation_dtype == "bf16" and p.output_dtype == "bf16",
        lambda p, d: (
            "family 'scaled_mm' gives bf16, as torch does with a scale a row, but got "
            f"{p.activation_dtype} and {p.output_dtype}"
        ),
    ),
    problem_rule(
        "scaled_mm",
        "scaled_mm_format",
        lambda p, d: _takes(p),
        lambda p, d: (
            "family 'scaled_mm' runs fp8e4m3 weights with a scale a row and fp8e4m3 x with one a "
            f"token, but got format '{p.format}'; name fp8e4m3-fp8e4m3"
        ),
    ),
    config_rule(
        "scaled_mm",
        "scaled_mm_fast_sums_range",
        lambda c, p, d: 0 <= c.fast_sums <= 1,
        lambda c, p, d: f"`0 <= fast_sums <= 1` must hold, but got fast_sums={c.fast_sums}",
    ),
)
