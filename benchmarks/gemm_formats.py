"""Weight formats that `benchmarks.gemm` compares: how a checkpoint's config names each, and how
humming-kernels does. Measures nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from humming.errors import UsageError
from humming.spec.naming import did_you_mean


@dataclass(frozen=True)
class ComparedFormat:
    """`weights` and `inputs`, of activations that are quantized: as compressed-tensors has them in
    a config.json; `peer` and `peer_inputs`: as humming-kernels' layer takes them."""

    weights: dict[str, Any]
    peer: dict[str, Any]
    inputs: dict[str, Any] | None = None
    peer_inputs: dict[str, Any] | None = None


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


def _quantized(of: ComparedFormat, kind: str, group_size: int | None = None) -> ComparedFormat:
    """The same weights with activations of 8 bits, a scale a token or a token and group."""
    inputs: dict[str, Any] = {"num_bits": 8, "type": kind, "dynamic": True, "symmetric": True}
    scope: dict[str, Any] = {"strategy": "token"}
    peer: dict[str, Any] = {"dtype": "int8" if kind == "int" else "float8e4m3"}
    if group_size:
        scope = {"strategy": "group", "group_size": group_size}
        peer["group_size"] = group_size
    return ComparedFormat(of.weights, of.peer, {**inputs, **scope}, peer)


def _integer_rows(bits: int) -> ComparedFormat:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "channel"}
    return ComparedFormat(weights, {"dtype": f"int{bits}", "group_size": 0})


_BLOCKS = ComparedFormat(
    {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
    {"dtype": "float8e4m3", "group_size": 128, "group_size_n": 128},
)
_FP8_ROWS = _float(8, "channel", None)
_MXFP4 = _float(4, "group", 32, scale_dtype="float8e8m0")

COMPARED: dict[str, ComparedFormat] = {
    "int4g128": _integer(4),
    "int2g128": _integer(2),
    "int3g128": _integer(3),
    "int8g128": _integer(8),
    "uint4g128z": _integer(4, zero_point=True),
    "fp8e4m3": _FP8_ROWS,
    "mxfp4": _MXFP4,
    "nvfp4": _float(4, "tensor_group", 16, scale_dtype="float8e4m3", scale_2_type="tensor"),
    "fp8e4m3-fp8e4m3": _quantized(_FP8_ROWS, "float"),
    "int8-int8": _quantized(_integer_rows(8), "int"),
    "int4-fp8e4m3": _quantized(_integer_rows(4), "float"),
    "mxfp4-fp8e4m3": _quantized(_MXFP4, "float"),
    "fp8e4m3b128-fp8e4m3g128": _quantized(_BLOCKS, "float", 128),
}


def compared(format: str) -> ComparedFormat:
    """The format of that name. Raises UsageError where it is not compared."""
    if format not in COMPARED:
        raise UsageError(
            f"--format must be of {', '.join(COMPARED)}, but got '{format}'"
            f"{did_you_mean(format, COMPARED)}"
        )
    return COMPARED[format]
