"""Parts of a QuantizedTensor, and several of them as one: exact, with new formats where the old one
cannot say it. No arithmetic on codes here.

What is cut inside a group of k gets the largest smaller group that fits both ends (128 cut at 1728
gives 64) by repeating scales; what is cut inside a block of rows gets groups of its own a row. With
act-order a part of k are the stored columns whose feature is in it, in their old order: groups then
keep different numbers of columns, and a group size that fits them all may be as small as 1. Where
the layer before can give its outputs in stored order (`take_rows` by the permutation), act-order
goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch

from humming.errors import LayoutError
from humming.quantize.tensor import QuantizedTensor, describe
from humming.spec.formats import QuantFormat, TensorFormat


def slice_rows(q: QuantizedTensor, start: int, end: int) -> QuantizedTensor:
    """Output features `start .. end - 1`. Raises LayoutError where there are none such."""
    n, _ = q.shape
    _check_range(start, end, n, "n")
    weight = q.weight_format
    size = weight.group_size or 1
    if weight.granularity == "block" and start % size:
        q = _with_row_groups(q)
    shared = q.global_scales
    if shared is not None and shared.shape[0] == n:
        shared = shared[start:end]
    scales, zeros = q.scales, q.zero_points
    if q.weight_format.granularity == "block":
        scales = scales[start // size : -(-end // size)]
    elif q.weight_format.granularity != "tensor":
        scales, zeros = scales[start:end], None if zeros is None else zeros[start:end]
    return replace(
        q, codes=q.codes[start:end], scales=scales, zero_points=zeros, global_scales=shared
    )


def slice_columns(q: QuantizedTensor, start: int, end: int) -> QuantizedTensor:
    """Input features `start .. end - 1`, counted anew from 0. Raises LayoutError where there are
    none such."""
    _check_range(start, end, q.shape[1], "k")
    if q.permutation is None:
        columns = None
        group = q.group_size
        fits = math.gcd(group, start) if start % group else group
    else:
        inside = (q.permutation >= start) & (q.permutation < end)
        columns = inside.nonzero().flatten()
        fits = _even_group(columns // q.group_size, q.group_size)
    if q.weight_format.granularity in ("tensor", "channel"):
        part = q
    else:
        part = q if fits == q.group_size and columns is None else _with_row_groups(q, fits)
    return _columns_of(part, start, end, columns, fits)


def with_group_size(q: QuantizedTensor, size: int) -> QuantizedTensor:
    """The same weight in groups of `size`, a divisor of its own group or block size, so that parts
    which are cut at different places have one format. Raises LayoutError for another size."""
    if q.weight_format.granularity not in ("group", "block") or size < 1 or q.group_size % size:
        raise LayoutError(
            f"`group_size % size == 0` must hold for groups or blocks, but got size={size} for "
            f"format '{q.format}'; choose a divisor"
        )
    return q if size == q.group_size else _with_row_groups(q, size)


def take_rows(q: QuantizedTensor, rows: torch.Tensor) -> QuantizedTensor:
    """Output features `rows` (integers [any], each in 0 .. n - 1) in that order."""
    n = q.shape[0]
    if rows.ndim != 1 or not len(rows) or int(rows.min()) < 0 or int(rows.max()) >= n:
        raise LayoutError(
            f"rows must be integers of 0 .. {n - 1}, one at least, but got {describe(rows)}; name "
            "output features"
        )
    if q.weight_format.granularity == "block":
        q = _with_row_groups(q)
    rows, shared, scales, zeros = rows.long(), q.global_scales, q.scales, q.zero_points
    if q.weight_format.granularity != "tensor":
        scales = _bytes(scales)[rows].view(scales.dtype)
        zeros = None if zeros is None else zeros[rows]
    if shared is not None and shared.shape[0] == n:
        shared = shared[rows]
    return replace(q, codes=q.codes[rows], scales=scales, zero_points=zeros, global_scales=shared)


def concat_rows(parts: Sequence[QuantizedTensor]) -> QuantizedTensor:
    """Weights with the same input, one under the other, each with its own scales: what fused layers
    (q, k and v; gate and up) hold.

    Scales of a tensor become those of channels where they differ; blocks that the seams cut become
    groups a row. Raises LayoutError where the parts differ in k, in the type of their codes, or in
    act-order.
    """
    if not parts:
        raise LayoutError("concat_rows needs at least one part, but got none")
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    _check_alike(parts)
    weight = first.weight_format
    size = weight.group_size or 1
    scales = [part.scales for part in parts]
    if weight.granularity == "tensor" and not all(_same(scales[0], one) for one in scales):
        parts = [_with_channel_scales(part) for part in parts]
    elif weight.granularity == "block" and any(part.shape[0] % size for part in parts[:-1]):
        parts = [_with_row_groups(part) for part in parts]
    joined = parts[0]
    shared_by_all = joined.weight_format.granularity == "tensor"
    return replace(
        joined,
        codes=torch.cat([part.codes for part in parts]),
        scales=joined.scales if shared_by_all else _joined([part.scales for part in parts]),
        zero_points=_joined_zeros(parts),
        global_scales=_joined_global(parts),
        input_scale=_largest_input_scale(parts),
    )


def _largest_input_scale(parts: Sequence[QuantizedTensor]) -> torch.Tensor | None:
    """The one by which no part's x is cut more than by its own."""
    scales = [part.input_scale for part in parts if part.input_scale is not None]
    return torch.stack(scales).amax(dim=0) if scales else None


def _check_range(start: int, end: int, size: int, name: str) -> None:
    if not 0 <= start < end <= size:
        raise LayoutError(
            f"`0 <= start < end <= {name}` must hold, but got start={start}, end={end}, "
            f"{name}={size}"
        )


def _check_alike(parts: Sequence[QuantizedTensor]) -> None:
    first = parts[0]
    for part in parts[1:]:
        if part.format != first.format or part.shape[1] != first.shape[1]:
            raise LayoutError(
                "parts of a fused layer must have one format and one k, but got "
                f"'{first.format}' with k={first.shape[1]} and '{part.format}' with "
                f"k={part.shape[1]}; keep them as layers of their own"
            )
        ours, theirs = first.permutation, part.permutation
        same = ours is theirs or (
            ours is not None and theirs is not None and torch.equal(ours, theirs)
        )
        if not same:
            raise LayoutError(
                "parts of a fused layer must have one act-order, but got two permutations; keep "
                "them as layers of their own"
            )


def _even_group(groups: torch.Tensor, group_size: int) -> int:
    """The largest group size by which runs of equal numbers in `groups` can be told apart."""
    _, counts = torch.unique_consecutive(groups, return_counts=True)
    ends = counts.cumsum(0)[:-1].tolist()  # the last run may be ragged
    return math.gcd(group_size, *(int(edge) for edge in ends))


def _with_row_groups(q: QuantizedTensor, size: int | None = None) -> QuantizedTensor:
    """The same weight with groups of `size` (a divisor of its own; None: the same) in each row."""
    weight = q.weight_format
    own = q.group_size
    size = size or own
    scales, zeros = q.row_scales_and_zeros(0, q.shape[0])
    groups = -(-q.shape[1] // size)

    def repeated(tensor: torch.Tensor) -> torch.Tensor:
        wide = _bytes(tensor).repeat_interleave(own // size, dim=1)[:, :groups]
        return wide.contiguous().view(tensor.dtype)

    return replace(
        q,
        format=_named(q, weight, f"g{size}") if _renamed(weight, size) else q.format,
        scales=repeated(scales),
        zero_points=None if zeros is None else repeated(zeros),
    )


def _with_channel_scales(q: QuantizedTensor) -> QuantizedTensor:
    """A weight with one scale for all as one with a scale a row."""
    scales = _bytes(q.scales).expand(q.shape[0], 1).contiguous().view(q.scales.dtype)
    return replace(q, format=_named(q, q.weight_format, ""), scales=scales)


def _columns_of(
    q: QuantizedTensor, start: int, end: int, columns: torch.Tensor | None, size: int
) -> QuantizedTensor:
    """Columns of a weight whose groups no end cuts: `start .. end - 1`, or those of `columns`."""
    if columns is None:
        codes, permutation = q.codes[:, start:end], None
    else:
        codes = q.codes.index_select(1, columns)
        assert q.permutation is not None
        permutation = (q.permutation[columns] - start).contiguous()
    scales, zeros = q.scales, q.zero_points
    if q.weight_format.granularity in ("group", "block"):
        picked = range(start // size, -(-end // size))
        chosen = torch.arange(picked.start, picked.stop, device=codes.device)
        if columns is not None:
            chosen = columns[::size] // size
        scales = _bytes(scales).index_select(1, chosen).view(scales.dtype)
        zeros = None if zeros is None else zeros.index_select(1, chosen)
    return replace(
        q, codes=codes.contiguous(), scales=scales, zero_points=zeros, permutation=permutation
    )


def _renamed(weight: TensorFormat, size: int) -> bool:
    return weight.granularity != "group" or weight.group_size != size


def _named(q: QuantizedTensor, weight: TensorFormat, scope: str) -> str:
    """The name of q's format with scales of another scope."""
    zero = {None: "", "int": "z", "float": "zf"}[weight.zero_point]
    activation = QuantFormat.parse(q.format).activation
    return f"{weight.dtype.name}{scope}{zero}" + (f"-{activation.name}" if activation else "")


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One under the other, in fp32 where their types differ."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        tensors = [tensor.to(torch.float32) for tensor in tensors]
    return torch.cat(list(tensors))


def _joined_zeros(parts: Sequence[QuantizedTensor]) -> torch.Tensor | None:
    zeros = [part.zero_points for part in parts if part.zero_points is not None]
    return _joined(zeros) if zeros else None


def _joined_global(parts: Sequence[QuantizedTensor]) -> torch.Tensor | None:
    """One second scale where all parts have the same, else one a row."""
    held = [part.global_scales for part in parts]
    if all(one is None for one in held):
        return None
    ones = torch.ones(1, dtype=torch.float32, device=parts[0].codes.device)
    filled = [ones if one is None else one for one in held]
    if all(one.shape[0] == 1 and torch.equal(one, filled[0]) for one in filled):
        return filled[0]
    return torch.cat([one.expand(p.shape[0]) for one, p in zip(filled, parts, strict=True)])


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(_bytes(a), _bytes(b))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """8-bit floats as bytes: torch cannot index them everywhere."""
    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
