"""What the CPU family can run on a device. Rules of GPUs are skinny.py and dequantize.py."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.layouts import CPU_LAYOUT
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

CPU_FORMATS = ("int4g128",)
CPU_MAX_ACCUMULATORS = {"generic": 6, "avx2": 6, "avx512": 28, "avx512_bf16": 28}
"""Code path -> 16-float accumulators that its register file holds beside operands (32 zmm, or 16
ymm taken in pairs)."""
CPU_ACTIVATIONS = {"avx512_bf16": ("bf16",)}
"""Code path -> the activation types that it multiplies exactly; all where it is not named."""


def _problem(
    name: str, holds: Callable[[Problem, Device], bool], says: Callable[[Problem, Device], str]
) -> Rule:
    return problem_rule("cpu", name, holds, says)


def _config(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("cpu", name, holds, says, static)


RULES: tuple[Rule, ...] = (
    _problem(
        "cpu_device",
        lambda p, d: d.kind == "cpu",
        lambda p, d: f"family 'cpu' needs a CPU, but got {d.kind} '{d.name}'",
    ),
    _problem(
        "cpu_op",
        lambda p, d: p.op == "dense",
        lambda p, d: f"family 'cpu' runs op 'dense', but got op '{p.op}'",
    ),
    _problem(
        "cpu_format",
        lambda p, d: p.format in CPU_FORMATS,
        lambda p, d: (
            f"family 'cpu' runs {', '.join(CPU_FORMATS)}, but got format '{p.format}'; "
            f"use --format {CPU_FORMATS[0]}"
        ),
    ),
    _problem(
        "cpu_layout",
        lambda p, d: p.layout == CPU_LAYOUT,
        lambda p, d: (
            f"family 'cpu' reads layout '{CPU_LAYOUT}', but got '{p.layout}'; repack the layer"
        ),
    ),
    _problem(
        "cpu_no_act_order",
        lambda p, d: not p.act_order,
        lambda p, d: "family 'cpu' has no act-order; quantize without it",
    ),
    _problem(
        "cpu_k_multiple",
        lambda p, d: p.k % 32 == 0,
        lambda p, d: f"`k % 32 == 0` must hold, but got k={p.k}; pad k to {-(-p.k // 32) * 32}",
    ),
    _config(
        "cpu_mainloop",
        lambda c, p, d: c.mainloop in ("stream", "blocked"),
        lambda c, p, d: f"mainloop must be stream or blocked, but got '{c.mainloop}'",
    ),
    _config(
        "cpu_code_path",
        lambda c, p, d: c.code_path in CODE_PATH_FLAGS and d.supports(c.code_path),
        lambda c, p, d: f"code_path '{c.code_path}' needs CPU flags that '{d.name}' lacks",
    ),
    _config(
        "cpu_bf16_activations",
        lambda c, p, d: takes_activations(c.code_path, p.activation_dtype),
        lambda c, p, d: (
            f"code_path '{c.code_path}' takes bf16 activations, as others are not exact in bf16, "
            f"but got {p.activation_dtype}; use code_path avx512"
        ),
        static=True,
    ),
    _config(
        "cpu_block_m_range",
        lambda c, p, d: 1 <= c.block_m <= 16,
        lambda c, p, d: f"`1 <= block_m <= 16` must hold, but got block_m={c.block_m}",
        static=True,
    ),
    _config(
        "cpu_block_n_multiple",
        lambda c, p, d: c.block_n % 16 == 0 and 16 <= c.block_n <= 128,
        lambda c, p, d: (
            f"`block_n % 16 == 0` and `16 <= block_n <= 128` must hold, but got block_n={c.block_n}"
        ),
        static=True,
    ),
    _config(
        "cpu_block_k_multiple",
        lambda c, p, d: c.block_k % 128 == 0 and 128 <= c.block_k <= 1024,
        lambda c, p, d: (
            "`block_k % 128 == 0` and `128 <= block_k <= 1024` must hold, but got "
            f"block_k={c.block_k}"
        ),
        static=True,
    ),
    _config(
        "cpu_unroll",
        lambda c, p, d: c.unroll in (1, 2, 4),
        lambda c, p, d: f"unroll must be 1, 2 or 4, but got {c.unroll}",
        static=True,
    ),
    _config(
        "cpu_prefetch_range",
        lambda c, p, d: c.prefetch_bytes % 64 == 0 and 0 <= c.prefetch_bytes <= 8192,
        lambda c, p, d: (
            f"`prefetch_bytes % 64 == 0` and `0 <= prefetch_bytes <= 8192` must hold, "
            f"but got prefetch_bytes={c.prefetch_bytes}"
        ),
        static=True,
    ),
    _config(
        "cpu_accumulators_fit",
        lambda c, p, d: (
            c.block_m * (c.block_n // 16) * c.unroll <= CPU_MAX_ACCUMULATORS.get(c.code_path, 6)
        ),
        lambda c, p, d: (
            f"`block_m * block_n / 16 * unroll <= {CPU_MAX_ACCUMULATORS.get(c.code_path, 6)}` must "
            "hold "
            f"for code_path '{c.code_path}', but got {c.block_m * (c.block_n // 16) * c.unroll}"
        ),
        static=True,
    ),
    _config(
        "cpu_stream_knobs",
        lambda c, p, d: c.mainloop != "stream" or c.block_k == 128,
        lambda c, p, d: f"mainloop 'stream' takes `block_k == 128`, but got block_k={c.block_k}",
    ),
    _config(
        "cpu_blocked_knobs",
        lambda c, p, d: (
            c.mainloop != "blocked" or (c.unroll == 1 and c.prefetch_bytes == 0 and c.split_k == 1)
        ),
        lambda c, p, d: (
            f"mainloop 'blocked' takes unroll 1, prefetch_bytes 0 and split_k 1, "
            f"but got {c.unroll}, {c.prefetch_bytes} and {c.split_k}"
        ),
    ),
    _config(
        "cpu_split_k_range",
        lambda c, p, d: 1 <= c.split_k <= min(d.threads or 1, -(-p.k // 128)),
        lambda c, p, d: (
            f"`1 <= split_k <= min(threads, k / 128)` must hold, but got split_k={c.split_k}, "
            f"threads={d.threads}, k={p.k}"
        ),
    ),
)


def takes_activations(code_path: str, activation_dtype: str) -> bool:
    """Whether `code_path` multiplies activations of this type without rounding them first."""
    return activation_dtype in CPU_ACTIVATIONS.get(code_path, (activation_dtype,))
