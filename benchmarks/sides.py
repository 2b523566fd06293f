"""The sides of a comparison: our served layer and torch's kernels on the same weight, each as calls
that walk through distinct copies of it. Times nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

import humming
from humming.dispatch.tables import TunedTable
from humming.quantize.tensor import QuantizedTensor
from humming.reference import error_bound, matmul_float64
from tuner.measuring.samples import rotation

GROUP = 128
Call = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Side:
    """One kernel as a user calls it.

    `calls` walk over as many weights as keep the last-level cache cold; `x` is its input [m, k],
    of the same values for all sides.
    """

    name: str
    what: str
    x: torch.Tensor
    calls: list[Call]


def make_sides(
    q: QuantizedTensor, m: int, table: TunedTable, cache_bytes: int, seed: int
) -> list[Side]:
    """Our layer first, then the same layer without a table, then torch's.

    Both of ours walk through the same copies of the weight, so that where they lie in memory moves
    neither against the other. Torch has kernels of its own for int4g128 and int8; for all formats
    it multiplies the dequantized weight, rounded to its type.
    """
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(m, q.shape[1], generator=draw).to(torch.bfloat16)
    layers = _layers(q, cache_bytes)
    none = TunedTable("none", ())
    own = {"int4g128": _int4pack, "int8": _int8pack}.get(q.format)
    return [
        _served("humming", "HummingLinear with the tuned table", layers, x, table),
        _served("heuristic", "HummingLinear without a table", layers, x, none),
        *([own(q, x, cache_bytes)] if own else []),
        _dense("torch_bf16", q, x, cache_bytes),
        _dense("torch_fp32", q, x.to(torch.float32), cache_bytes),
    ]


def errors(side: Side, q: QuantizedTensor) -> dict[str, float]:
    """Distance of a side's output from float64 on the dequantized weight.

    `relative`: Frobenius norm of the difference over that of the exact output. `of_bound`: largest
    |error| in units of the bound of `humming.reference.error_bound`.
    """
    exact = matmul_float64(side.x, q)
    difference = side.calls[0]().to(torch.float64) - exact
    bound = error_bound(side.x, q, side.x.dtype)
    return {
        "relative": float(torch.linalg.norm(difference) / torch.linalg.norm(exact)),
        "of_bound": float((difference.abs() / bound).max()),
    }


def _layers(q: QuantizedTensor, cache_bytes: int) -> list[humming.HummingLinear]:
    """So many copies of the layer as keep the cache cold."""
    first = humming.HummingLinear.from_quantized(q)
    weight_bytes = sum(buffer.nbytes for buffer in first.buffers())
    count = rotation(weight_bytes, cache_bytes)
    return [first, *(copy.deepcopy(first) for _ in range(count - 1))]


def _served(
    name: str,
    what: str,
    layers: list[humming.HummingLinear],
    x: torch.Tensor,
    table: TunedTable,
) -> Side:
    # A shallow copy has plans of its own, and the tensors of its layer.
    layers = [copy.copy(layer) for layer in layers]
    for layer in layers:
        layer.prepare(table=table, m=len(x), dtype=x.dtype)
    return Side(name, what, x, [_call(layer, x) for layer in layers])


def _call(layer: torch.nn.Module, x: torch.Tensor) -> Call:
    return lambda: layer(x)


def _int4pack(q: QuantizedTensor, x: torch.Tensor, cache_bytes: int) -> Side:
    """torch's own int4 kernel. It takes codes 0 .. 15 and computes (code - 8) * scale + zero."""
    codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(q.codes.to(torch.int32) + 8, 1)
    scales = q.scales.to(torch.bfloat16).t().contiguous()
    scales_and_zeros = torch.stack((scales, torch.zeros_like(scales)), dim=2).contiguous()
    sets = rotation(codes.nbytes + scales_and_zeros.nbytes, cache_bytes)

    def call(packed: torch.Tensor, both: torch.Tensor) -> Call:
        mm = torch.ops.aten._weight_int4pack_mm_for_cpu
        return lambda: mm(x, packed, GROUP, both)

    calls = [call(codes.clone(), scales_and_zeros.clone()) for _ in range(sets)]
    return Side("torch_int4pack", "torch.ops.aten._weight_int4pack_mm_for_cpu, bf16 x", x, calls)


def _int8pack(q: QuantizedTensor, x: torch.Tensor, cache_bytes: int) -> Side:
    """torch's own kernel of int8 by channel."""
    scales = q.scales.to(torch.bfloat16).view(-1)
    sets = rotation(q.codes.nbytes, cache_bytes)

    def call(codes: torch.Tensor) -> Call:
        mm = torch.ops.aten._weight_int8pack_mm
        return lambda: mm(x, codes, scales)

    calls = [call(q.codes.clone()) for _ in range(sets)]
    return Side("torch_int8pack", "torch.ops.aten._weight_int8pack_mm, bf16 x", x, calls)


def _dense(name: str, q: QuantizedTensor, x: torch.Tensor, cache_bytes: int) -> Side:
    weight = q.dequantize(x.dtype)
    weights = [weight.clone() for _ in range(rotation(weight.nbytes, cache_bytes))]

    def call(w: torch.Tensor) -> Call:
        return lambda: torch.nn.functional.linear(x, w)

    kind = str(x.dtype).removeprefix("torch.")
    return Side(name, f"torch.nn.functional.linear, {kind}", x, [call(w) for w in weights])
