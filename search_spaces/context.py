"""The names that constraints may use besides a space's parameters: one table, no parsing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.legality import takes
from humming.spec.problem import Problem


@dataclass(frozen=True)
class ContextName:
    """A name's meaning, and its value for a problem on a device."""

    meaning: str
    value: Callable[[Problem, Device], int]


def _has(code_path: str) -> ContextName:
    flags = ", ".join(CODE_PATH_FLAGS[code_path])
    return ContextName(
        f"1 where the CPU runs code path {code_path} ({flags}), and that takes the format and the "
        "activations, else 0",
        lambda p, d: int(d.kind == "cpu" and d.supports(code_path) and takes(code_path, p)),
    )


def _capability(device: Device) -> int:
    major, minor = device.compute_capability or (0, 0)
    return 10 * major + minor


NAMES: dict[str, ContextName] = {
    "m": ContextName(
        "tokens: rows of x; of experts, rows of one that is met, in the mean",
        lambda p, _: p.rows_of_expert,
    ),
    "experts_met": ContextName(
        "experts that get a token, in the mean; 1 where there are none",
        lambda p, _: max(1, round(p.experts_met)),
    ),
    "n": ContextName("out_features: rows of w", lambda p, _: p.n),
    "k": ContextName("in_features: columns of w", lambda p, _: p.k),
    "threads": ContextName(
        "threads that a kernel may use; 0 on a GPU", lambda _, d: d.threads or 0
    ),
    "cache_bytes": ContextName(
        "last-level cache in bytes; 0 if unknown", lambda _, d: d.cache_bytes
    ),
    "l2_bytes": ContextName(
        "L2 cache of one CPU core in bytes; 0 if unknown", lambda _, d: d.l2_bytes_per_core or 0
    ),
    "sm_count": ContextName("multiprocessors of a GPU; 0 on a CPU", lambda _, d: d.sm_count or 0),
    "capability": ContextName(
        "compute capability of a GPU times ten, 90 for 9.0; 0 on a CPU",
        lambda _, d: _capability(d),
    ),
    "bits": ContextName("bits of a weight's code", lambda p, _: p.quant.weight.dtype.bits),
    "has_avx2": _has("avx2"),
    "has_avx_vnni": _has("avx_vnni"),
    "has_avx512": _has("avx512"),
    "has_avx512_vnni": _has("avx512_vnni"),
    "has_avx512_bf16": _has("avx512_bf16"),
}


def context_of(problem: Problem, device: Device) -> dict[str, int]:
    """The value of every name of NAMES for `problem` on `device`."""
    return {name: entry.value(problem, device) for name, entry in NAMES.items()}
