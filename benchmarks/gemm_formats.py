"""Weight formats that `benchmarks.gemm` compares: how a checkpoint's config names each, and how
humming-kernels does. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from humming.errors import UsageError
from humming.spec.naming import did_you_mean


@dataclass(frozen=True)
class ComparedFormat:
    """`weights`: as compressed-tensors has them in a config.json; `peer`: as humming-kernels' layer
    takes them."""

    weights: dict[str, Any]
    peer: dict[str, Any]


def _integer(bits: int, zero_point: bool = False) -> ComparedFormat:
    weights = {"num_bits": bits, "type": "int", "symmetric": not zero_point}
    peer: dict[str, Any] = {"dtype": f"{'u' if zero_point else ''}int{bits}", "group_size": 128}
    if zero_point:
        peer["has_zero_point"] = True
    return ComparedFormat({**weights, "strategy": "group", "group_size": 128}, peer)


def _float(bits: int, strategy: str, group_size: int | None, **peer: Any) -> ComparedFormat:
    weights = {"num_bits": bits, "type": "float", "strategy": strategy, "group_size": group_size}
    dtype = "float4e2m1" if bits == 4 else "float8e4m3"
    return ComparedFormat(weights, {"dtype": dtype, "group_size": group_size or 0, **peer})


COMPARED: dict[str, ComparedFormat] = {
    "int4g128": _integer(4),
    "int2g128": _integer(2),
    "int3g128": _integer(3),
    "int8g128": _integer(8),
    "uint4g128z": _integer(4, zero_point=True),
    "fp8e4m3": _float(8, "channel", None),
    "mxfp4": _float(4, "group", 32, scale_dtype="float8e8m0"),
    "nvfp4": _float(4, "tensor_group", 16, scale_dtype="float8e4m3", scale_2_type="tensor"),
}


def compared(format: str) -> ComparedFormat:
    """The format of that name. Raises UsageError where it is not compared."""
    if format not in COMPARED:
        raise UsageError(
            f"--format must be of {', '.join(COMPARED)}, but got '{format}'"
            f"{did_you_mean(format, COMPARED)}"
        )
    return COMPARED[format]
