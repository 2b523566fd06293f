"""`humming.moe_gemm`: rows of x times the weights of their experts, in one call. The module around
it is module.py."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from humming.dispatch.sources import load_table, locate
from humming.errors import LayoutError
from humming.moe.op import through_op
from humming.moe.plan import ExpertsSpec
from humming.moe.router import check_top_k
from humming.moe.rows import Rows
from humming.quantize.experts import PackedExperts, pack_experts
from humming.quantize.tensor import SCALE_DTYPES, QuantizedTensor, check_tensor
from humming.spec.routing import UNIFORM
from humming.state import ACTIVATIONS, layout_on


def moe_gemm(
    x: torch.Tensor,
    weight: PackedExperts | Sequence[QuantizedTensor],
    ids: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    counts: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    first_expert: int = 0,
    top_k: int | None = None,
    routing: str = UNIFORM,
    table: str | os.PathLike[str] | None = None,
) -> torch.Tensor:
    """Each row of x times the weight of its expert, plus its row of `bias[experts, n]`.

    One of the three says which expert that is, as a tensor on x's device that the host never reads:

    ids      int [m, top_k]: x is [m, k], or [m, top_k, k] where each of a token's experts has an x
             of its own; gives [m, top_k, n]. Ids outside first_expert .. first_expert + experts - 1
             belong to other ranks: their rows are zero.
    offsets  int [experts + 1]: x [rows, k] is sorted by experts, expert e has rows offsets[e] ..
             offsets[e + 1] - 1; gives [rows, n], undefined in rows of no expert.
    counts   int [experts]: x [experts, capacity, k], of which the first counts[e] rows count; gives
             [experts, capacity, n], undefined in the others.

    `top_k` and `routing` are what tuned tables are looked up by, where ids do not say top_k. Raises
    LayoutError on a shape, type or device that does not fit.
    """
    check_tensor(x, "x", "of floats")
    if bias is not None:
        check_tensor(bias, "bias", "[experts, n]")
    if top_k is not None:
        check_top_k(top_k)
    packed = _packed(x, weight)
    rows, flat, shape = _rows(x, packed, ids, offsets, counts, first_expert)
    path = locate(table) if table is not None else None
    if path is not None:
        load_table(path)
    told = int(ids.shape[1]) if ids is not None else top_k or 1
    spec = spec_of(packed, told, routing, None if path is None else str(path))
    if top_k and ids is None:
        rows = _per_token(rows, top_k)
    return through_op(flat, packed, bias, rows, spec.text).view(*shape, packed.n)


def spec_of(
    weight: PackedExperts, top_k: int, routing: str = UNIFORM, table: str | None = None
) -> ExpertsSpec:
    """The spec of packed experts."""
    return ExpertsSpec(
        weight.format,
        weight.experts,
        weight.n,
        weight.k,
        weight.layout,
        SCALE_DTYPES[weight.scale_dtype],
        weight.permutation is not None,
        top_k,
        routing,
        table,
    )


def _packed(x: torch.Tensor, weight: PackedExperts | Sequence[QuantizedTensor]) -> PackedExperts:
    if isinstance(weight, PackedExperts):
        return weight
    fits = isinstance(weight, Sequence) and all(isinstance(q, QuantizedTensor) for q in weight)
    if not fits or not weight:
        raise LayoutError(
            "moe_gemm takes PackedExperts or one QuantizedTensor an expert, but got "
            f"{_kind_of(weight)}; quantize each expert with humming.quantize"
        )
    dtype = x.dtype if x.dtype in ACTIVATIONS else torch.bfloat16
    order = any(q.permutation is not None for q in weight)
    layout = layout_on(weight[0].codes.device, weight[0].format, "moe", order)
    return pack_experts(weight, layout, dtype)


def _kind_of(weight: object) -> str:
    if isinstance(weight, torch.Tensor):
        return f"a tensor {list(weight.shape)} of {str(weight.dtype).removeprefix('torch.')}"
    if isinstance(weight, Sequence) and len(weight):
        odd = next(one for one in weight if not isinstance(one, QuantizedTensor))
        return f"{type(weight).__name__} with {type(odd).__name__}"
    return f"{'an empty ' * isinstance(weight, Sequence)}{type(weight).__name__}"


def _rows(
    x: torch.Tensor,
    weight: PackedExperts,
    ids: torch.Tensor | None,
    offsets: torch.Tensor | None,
    counts: torch.Tensor | None,
    first_expert: int,
) -> tuple[Rows, torch.Tensor, tuple[int, ...]]:
    """The rows, x as [rows of x, k], and the output's shape without n."""
    given = [tensor for tensor in (ids, offsets, counts) if tensor is not None]
    if len(given) != 1:
        raise LayoutError(
            f"one of ids, offsets and counts must be given, but got {len(given)} of them"
        )
    if ids is not None:
        rows = Rows.indexed(ids, first_expert, shared=x.ndim == 2)
        if x.ndim not in (2, 3) or tuple(x.shape[:-1]) != tuple(ids.shape[: x.ndim - 1]):
            raise LayoutError(
                f"x must be [m, k] or [m, top_k, k] for ids {list(ids.shape)}, but got "
                f"{list(x.shape)}"
            )
        return rows, x.reshape(-1, x.shape[-1]), tuple(ids.shape)
    if offsets is not None:
        if x.ndim != 2:
            raise LayoutError(f"x must be [rows, k] for offsets, but got {list(x.shape)}")
        return Rows.contiguous(offsets, x.shape[0]), x, (x.shape[0],)
    assert counts is not None
    if x.ndim != 3 or x.shape[0] != weight.experts:
        raise LayoutError(
            f"x must be [{weight.experts}, capacity, k] for counts, but got {list(x.shape)}"
        )
    return Rows.masked(counts, x.shape[1]), x.reshape(-1, x.shape[-1]), tuple(x.shape[:2])


def _per_token(rows: Rows, top_k: int) -> Rows:
    """Rows of which each token has `top_k`."""
    return Rows(
        rows.grouping,
        rows.groups,
        rows.count,
        -(-rows.count // top_k),
        rows.shared,
        rows.first_expert,
        rows.capacity,
    )
