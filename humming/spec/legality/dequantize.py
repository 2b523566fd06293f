"""What the dequantize family (weights to 16 bits, then torch's matmul) can run on a device."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.legality.cuda import problem_rules
from humming.spec.legality.rule import Rule, config_rule

WARPS_MOST = 16
UNROLL_MOST = 8


def _rule(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("dequantize", name, holds, says, static)


RULES: tuple[Rule, ...] = (
    *problem_rules("dequantize", every_format=True),
    _rule(
        "dequantize_warps_range",
        lambda c, p, d: 1 <= c.warps <= WARPS_MOST,
        lambda c, p, d: f"`1 <= warps <= {WARPS_MOST}` must hold, but got warps={c.warps}",
        static=True,
    ),
    _rule(
        "dequantize_unroll_range",
        lambda c, p, d: 1 <= c.unroll <= UNROLL_MOST,
        lambda c, p, d: f"`1 <= unroll <= {UNROLL_MOST}` must hold, but got unroll={c.unroll}",
        static=True,
    ),
    _rule(
        "dequantize_panel_n_multiple",
        lambda c, p, d: c.panel_n >= 0 and c.panel_n % 16 == 0,
        lambda c, p, d: (
            "`panel_n % 16 == 0` and `panel_n >= 0` must hold (0 = all of n), but got "
            f"panel_n={c.panel_n}"
        ),
    ),
)
