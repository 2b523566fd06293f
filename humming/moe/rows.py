"""Rows: which row of x goes to which expert, and where the result goes; on the tensors' own device,
never looked at by the host. What multiplies them is plan.py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from humming.errors import LayoutError

_WHOLE = (torch.int32, torch.int64)
_MOST = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Rows:
    """How `count` rows of the output are given to experts.

    grouping      "indexed": `groups` int32 [count] is the expert of each row, counted from
                  `first_expert`; rows of others are zero in the output. "contiguous": `groups`
                  int32 [experts + 1] is where each expert's rows begin, as rows are sorted.
                  "masked": `groups` int32 [experts] says how many of `capacity` rows count.
    shared        rows of the output that follow each other and share one row of x
    tokens        what a problem counts as m
    made          what kernels derive from it once and keep: sorted rows, tiles
    """

    grouping: str
    groups: torch.Tensor
    count: int
    tokens: int
    shared: int = 1
    first_expert: int = 0
    capacity: int = 0
    made: dict[object, torch.Tensor] = field(default_factory=dict)

    def with_own_x(self) -> Rows:
        """The same rows where each has an x of its own: what a second projection multiplies."""
        return replace(self, shared=1)

    @staticmethod
    def indexed(ids: torch.Tensor, first_expert: int = 0, shared: bool = True) -> Rows:
        """Of `ids` [m, top_k], the experts of each token. `shared`: x has a row a token; else one
        for each of its experts."""
        if not _is_whole(ids, 2) or ids.shape[1] < 1:
            raise LayoutError(
                f"ids must be int32 or int64 [m, top_k >= 1] in a tensor, but got {_of(ids)}"
            )
        if not 0 <= first_expert <= _MOST:
            raise LayoutError(f"`0 <= first_expert <= {_MOST}` must hold, but got {first_expert}")
        m, top_k = ids.shape
        _check_count(m * top_k)
        shares = top_k if shared else 1
        return Rows("indexed", _narrow(ids), m * top_k, m, shares, int(first_expert))

    @staticmethod
    def contiguous(offsets: torch.Tensor, count: int) -> Rows:
        """Of `offsets` [experts + 1], where each expert's rows begin and the last one's end."""
        if not _is_whole(offsets, 1) or len(offsets) < 2:
            raise LayoutError(
                f"offsets must be int32 or int64 [experts + 1] in a tensor, but got {_of(offsets)}"
            )
        _check_count(count)
        return Rows("contiguous", _narrow(offsets), count, count)

    @staticmethod
    def masked(counts: torch.Tensor, capacity: int) -> Rows:
        """Of `counts` [experts], how many of each expert's `capacity` rows count."""
        if not _is_whole(counts, 1) or not len(counts):
            raise LayoutError(
                f"counts must be int32 or int64 [experts] in a tensor, but got {_of(counts)}"
            )
        count = len(counts) * capacity
        _check_count(count)
        return Rows("masked", _narrow(counts), count, count, capacity=capacity)


def _check_count(count: int) -> None:
    if count > _MOST:
        raise LayoutError(f"rows must be at most {_MOST}, but got {count}; split the batch")


def _is_whole(numbers: object, ndim: int) -> bool:
    return isinstance(numbers, torch.Tensor) and numbers.ndim == ndim and numbers.dtype in _WHOLE


def _narrow(numbers: torch.Tensor) -> torch.Tensor:
    """As int32; what that cannot hold stays outside of everything instead of wrapping."""
    if numbers.dtype == torch.int64:
        numbers = numbers.clamp(-1, _MOST)
    return numbers.to(torch.int32).contiguous()


def _of(tensor: object) -> str:
    if not isinstance(tensor, torch.Tensor):
        return type(tensor).__name__
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
