"""What the CPU family can run on a device. Rules of GPUs are skinny.py and dequantize.py."""

from __future__ import annotations

from collections.abc import Callable

from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.formats import TensorFormat
from humming.spec.layouts import CPU_LAYOUT
from humming.spec.legality.rule import Rule, config_rule, problem_rule
from humming.spec.problem import Problem

CPU_MAX_ACCUMULATORS = {
    "generic": 6,
    "avx2": 6,
    "avx_vnni": 6,
    "avx512": 28,
    "avx512_vnni": 28,
    "avx512_bf16": 28,
}
"""Code path -> 16-float accumulators that its register file holds beside operands (32 zmm, or 16
ymm taken in pairs)."""
CPU_ACTIVATIONS = {"avx512_bf16": ("bf16",)}
"""Code path -> the activation types that it multiplies exactly; all where it is not named."""
INT32_COLUMNS = 1 << 16
"""Products of bytes whose sum cannot overflow 32 bits."""
CPU_WHOLE_NUMBER_PATHS = ("avx_vnni", "avx512_vnni")
"""Code paths for quantized activations alone."""


_PATHS_BY_QUANTIZED_X = {
    False: tuple(path for path in CODE_PATH_FLAGS if path not in CPU_WHOLE_NUMBER_PATHS),
    True: tuple(path for path in CODE_PATH_FLAGS if path not in CPU_ACTIVATIONS),
}


def is_exact_in_bf16(weight: TensorFormat) -> bool:
    """Whether codes less their zero points are bf16 numbers, and pairs of them share a group."""
    return weight.zero_point != "float" and (weight.group_size or 8) % 8 == 0


def multiplies_bytes(weight: TensorFormat) -> bool:
    """Whether weights can be multiplied with int8 activations as whole numbers."""
    is_whole = weight.dtype.name in ("int4", "int8") and weight.scale_dtype is None
    size = weight.group_size or 8
    return is_whole and weight.granularity != "block" and size % 8 == 0 and size <= INT32_COLUMNS


def problem_rules(family: str) -> tuple[Rule, ...]:
    """What every family of CPUs asks of a problem."""
    return (
        problem_rule(
            family,
            f"{family}_device",
            lambda p, d: d.kind == "cpu",
            lambda p, d: f"family '{family}' needs a CPU, but got {d.kind} '{d.name}'",
        ),
        problem_rule(
            family,
            f"{family}_op",
            lambda p, d: p.op == "dense" or family == "cpu",
            lambda p, d: f"family '{family}' runs op 'dense', but got op '{p.op}'; use family cpu",
        ),
        problem_rule(
            family,
            f"{family}_layout",
            lambda p, d: p.layout == CPU_LAYOUT,
            lambda p, d: (
                f"family '{family}' reads layout '{CPU_LAYOUT}', but got '{p.layout}'; repack the "
                "layer"
            ),
        ),
    )


def _config(
    name: str, holds: Callable[..., bool], says: Callable[..., str], static: bool = False
) -> Rule:
    return config_rule("cpu", name, holds, says, static)


RULES: tuple[Rule, ...] = (
    *problem_rules("cpu"),
    problem_rule(
        "cpu",
        "cpu_format",
        lambda p, d: p.quant.activation is None or p.quant.activation.name == "int8",
        lambda p, d: (
            "CPUs run activations of 16 or 32 bits or int8 by token, but got format "
            f"'{p.format}'; use {p.quant.weight.name}"
        ),
    ),
    problem_rule(
        "cpu",
        "cpu_int8_weights",
        lambda p, d: p.quant.activation is None or multiplies_bytes(p.quant.weight),
        lambda p, d: (
            "int8 activations go with weights of int4 or int8 in groups of a multiple of 8, at "
            f"most {INT32_COLUMNS}, but got format '{p.format}'; use {p.quant.weight.name}"
        ),
        static=True,
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
        lambda c, p, d: (
            p.activation_dtype in CPU_ACTIVATIONS.get(c.code_path, (p.activation_dtype,))
        ),
        lambda c, p, d: (
            f"code_path '{c.code_path}' takes bf16 activations, as others are not exact in bf16, "
            f"but got {p.activation_dtype}; use code_path avx512"
        ),
        static=True,
    ),
    _config(
        "cpu_bf16_weights",
        lambda c, p, d: c.code_path not in CPU_ACTIVATIONS or is_exact_in_bf16(p.quant.weight),
        lambda c, p, d: (
            f"code_path '{c.code_path}' takes weights that are exact in bf16 in groups of a "
            f"multiple of 8, but got format '{p.format}'; use code_path avx512"
        ),
        static=True,
    ),
    _config(
        "cpu_products",
        lambda c, p, d: c.code_path in _PATHS_BY_QUANTIZED_X[p.quant.activation is not None],
        lambda c, p, d: (
            f"code_path '{c.code_path}' multiplies "
            + ("int8" if c.code_path in CPU_WHOLE_NUMBER_PATHS else "floats or int8, and not int8")
            + f" activations, but got format '{p.format}'; use code_path avx512"
        ),
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


def takes(code_path: str, problem: Problem) -> bool:
    """Whether `code_path` multiplies `problem`'s activations and weights without rounding either
    first, whatever the CPU."""
    if problem.quant.activation is not None:
        return code_path not in CPU_ACTIVATIONS
    if code_path in CPU_WHOLE_NUMBER_PATHS:
        return False
    return code_path not in CPU_ACTIVATIONS or (
        problem.activation_dtype in CPU_ACTIVATIONS[code_path]
        and is_exact_in_bf16(problem.quant.weight)
    )
