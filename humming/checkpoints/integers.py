"""Weights of integer codes with zero points -> QuantizedTensor: symmetric where all zero points are
the middle, and in activation order where groups lie scattered. How tools pack them is elsewhere.
"""

from __future__ import annotations

import torch

from humming.checkpoints.packing import signed
from humming.checkpoints.stored import StoredModule
from humming.quantize.tensor import QuantizedTensor


def integer_weight(
    module: StoredModule,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    bits: int,
    group_size: int | None,
    groups_of: torch.Tensor | None = None,
    said: tuple[bool, bool] = (False, False),
) -> QuantizedTensor:
    """A weight of unsigned `codes` [n, k], and `scales` and `zero_points` [n, groups].

    A `group_size` of None means one group a channel. `groups_of` int [k] is the group of each
    column where they lie scattered (act-order). `said`, what the config says of symmetry and
    act-order, decides where tensors have no numbers (meta).
    """
    permutation = None
    if groups_of is not None and groups_of.is_meta:
        permutation = groups_of.to(torch.int32) if said[1] and group_size else None
    elif groups_of is not None:
        permutation = _order(module, groups_of, group_size or codes.shape[1], codes.shape[1])
    if permutation is not None:
        codes = codes[:, permutation.to(torch.int64)]
    middle = 1 << (bits - 1)
    symmetric = said[0] if zero_points.is_meta else bool((zero_points == middle).all())
    groups = f"g{group_size}" if group_size else ""
    weight = QuantizedTensor(
        format=f"int{bits}{groups}" if symmetric else f"uint{bits}{groups}z",
        codes=signed(codes, bits) if symmetric else codes.contiguous(),
        scales=scales.contiguous(),
        zero_points=None if symmetric else zero_points.to(torch.uint8).contiguous(),
        permutation=permutation,
    )
    return module.checked(weight)


def _order(
    module: StoredModule, groups_of: torch.Tensor, group_size: int, k: int
) -> torch.Tensor | None:
    """int32 [k]: the column that stands at each place once groups lie together; None where they
    do."""
    lying = torch.arange(k) // group_size
    if torch.equal(groups_of.to(torch.int64), lying):
        return None
    order = torch.argsort(groups_of.to(torch.int64), stable=True)
    if not torch.equal(groups_of.to(torch.int64)[order], lying):
        raise module.fault(
            f"`g_idx` must name each group of {group_size} columns as often as it has columns",
            f"groups {int(groups_of.min())} to {int(groups_of.max())} of k={k}, unevenly",
            "the file is damaged, or its group_size is not the config's",
        )
    return order.to(torch.int32)
