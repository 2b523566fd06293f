"""What the blas family (weights to fp32, then torch's matmul) can run on a CPU."""

from __future__ import annotations

from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.legality.cpu import CPU_ACTIVATIONS, CPU_WHOLE_NUMBER_PATHS, problem_rules
from humming.spec.legality.rule import Rule, config_rule, problem_rule

_PATHS = tuple(
    path
    for path in CODE_PATH_FLAGS
    if path not in CPU_ACTIVATIONS and path not in CPU_WHOLE_NUMBER_PATHS
)
"""Code paths with fp32 values; the others differ from one of these in their products alone."""

RULES: tuple[Rule, ...] = (
    *problem_rules("blas"),
    problem_rule(
        "blas",
        "blas_float_activations",
        lambda p, d: p.quant.activation is None,
        lambda p, d: (
            "CPUs multiply floats, or int4 and int8 weights with int8 activations, but got format "
            f"'{p.format}'; use {p.quant.weight.name}"
        ),
    ),
    config_rule(
        "blas",
        "blas_code_path",
        lambda c, p, d: c.code_path in _PATHS and d.supports(c.code_path),
        lambda c, p, d: (
            f"code_path must be one of {', '.join(_PATHS)} and run here, but got '{c.code_path}' "
            f"on '{d.name}'"
        ),
    ),
    config_rule(
        "blas",
        "blas_panel_n_multiple",
        lambda c, p, d: c.panel_n >= 16 and c.panel_n % 16 == 0,
        lambda c, p, d: (
            f"`panel_n % 16 == 0` and `panel_n >= 16` must hold, but got panel_n={c.panel_n}"
        ),
    ),
)
