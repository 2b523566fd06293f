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
        if ids.ndim != 2 or ids.dtype not in _WHOLE:
            raise LayoutError(f"ids must be int32 or int64 [m, top_k], but got {_of(ids)}")
        m, top_k = ids.shape
        _check_count(m * top_k)
        groups = ids.to(torch.int32).contiguous()
        return Rows(
            "indexed", groups, m * top_k, m, top_k if shared and top_k else 1, int(first_expert)
        )

    @staticmethod
    def contiguous(offsets: torch.Tensor, count: int) -> Rows:
        """Of `offsets` [experts + 1], where each expert's rows begin and the last one's end."""
        if offsets.ndim != 1 or offsets.dtype not in _WHOLE or len(offsets) < 2:
            raise LayoutError(
                f"offsets must be int32 or int64 [experts + 1], but got {_of(offsets)}"
            )
        _check_count(count)
        return Rows("contiguous", offsets.to(torch.int32).contiguous(), count, count)

    @staticmethod
    def masked(counts: torch.Tensor, capacity: int) -> Rows:
        """Of `counts` [experts], how many of each expert's `capacity` rows count."""
        if counts.ndim != 1 or counts.dtype not in _WHOLE or not len(counts):
            raise LayoutError(f"counts must be int32 or int64 [experts], but got {_of(counts)}")
        count = len(counts) * capacity
        _check_count(count)
        return Rows("masked", counts.to(torch.int32).contiguous(), count, count, capacity=capacity)


def _check_count(count: int) -> None:
    if count > _MOST:
        raise LayoutError(f"rows must be at most {_MOST}, but got {count}; split the batch")


def _of(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
