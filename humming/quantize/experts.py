"""PackedExperts: the weights of a mixture's experts in the layout that a device's kernels read, one
after another. One expert alone is layout.py's PackedWeight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from humming.errors import LayoutError
from humming.quantize.layout import TENSORS, PackedWeight, pack, settle, unpack
from humming.quantize.tensor import QuantizedTensor
from humming.spec.layouts import CPU_LAYOUT


@dataclass(frozen=True, eq=False)
class PackedExperts:
    """Weights `w[experts, n, k]` of one format, each packed as a PackedWeight is.

    Every tensor is that of a PackedWeight with `experts` in front: `permutation` is int32 [experts,
    k], an order of its own for each.
    """

    format: str
    experts: int
    n: int
    k: int
    layout: str
    codes: torch.Tensor
    scales: torch.Tensor
    scale_dtype: torch.dtype
    zero_points: torch.Tensor | None = None
    row_scales: torch.Tensor | None = None
    permutation: torch.Tensor | None = None

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that exist, by field."""
        found = {name: getattr(self, name) for name in TENSORS}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @property
    def nbytes(self) -> int:
        """Bytes of all experts."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def expert(self, number: int) -> PackedWeight:
        """One expert's weight, sharing memory."""

        def own(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor[number]

        return PackedWeight(
            self.format,
            self.n,
            self.k,
            self.layout,
            self.codes[number],
            self.scales[number],
            self.scale_dtype,
            own(self.zero_points),
            own(self.row_scales),
            own(self.permutation),
        )

    def slice(self, start: int, end: int) -> PackedExperts:
        """Experts `start .. end - 1`, sharing memory: what one expert-parallel rank holds."""
        if not 0 <= start < end <= self.experts:
            raise LayoutError(
                f"`0 <= start < end <= experts` must hold, but got start={start}, end={end}, "
                f"experts={self.experts}"
            )
        parts = {name: tensor[start:end] for name, tensor in self.tensors.items()}
        return replace(self.with_tensors(parts), experts=end - start)

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> PackedExperts:
        """The same weights with other tensors in those fields."""
        changed: dict[str, Any] = dict(tensors)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> PackedExperts:
        """The same weights on `device`, in the same layout."""
        moved = self.with_tensors({name: t.to(device) for name, t in self.tensors.items()})
        settle(moved.codes)
        return moved


def pack_experts(
    weights: Iterable[QuantizedTensor],
    layout: str = CPU_LAYOUT,
    activation: torch.dtype | None = None,
    count: int | None = None,
) -> PackedExperts:
    """`weights`, one an expert, in `layout`; see `pack`. Packed one by one as they come.

    `count` says how many come where that is not known from `len(weights)`. Raises LayoutError where
    they differ in format, shape or type of scales, or are not so many.
    """
    if count is None:
        weights = list(weights)
        count = len(weights)
    whole: PackedExperts | None = None
    done = 0
    for q in weights:
        one = pack(q, layout, activation)
        if done >= count:
            break
        if whole is None:
            whole = _room_for(one, count)
        whole = _put(whole, one, done)
        done += 1
    if whole is None or done != count:
        raise LayoutError(f"experts must be {count or 'one at least'}, but got {done}")
    settle(whole.codes)
    return whole


def unpack_experts(weights: PackedExperts) -> list[QuantizedTensor]:
    """The exact inverse of `pack_experts`."""
    return [unpack(weights.expert(number)) for number in range(weights.experts)]


def _room_for(one: PackedWeight, count: int) -> PackedExperts:
    room: dict[str, Any] = {
        name: tensor.new_empty((count, *tensor.shape)) for name, tensor in one.tensors.items()
    }
    return PackedExperts(
        one.format, count, one.n, one.k, one.layout, scale_dtype=one.scale_dtype, **room
    )


def _put(whole: PackedExperts, one: PackedWeight, number: int) -> PackedExperts:
    same = (one.format, one.n, one.k, one.scale_dtype) == (
        whole.format,
        whole.n,
        whole.k,
        whole.scale_dtype,
    )
    if not same or (one.row_scales is None) != (whole.row_scales is None):
        raise LayoutError(
            f"experts must have one format, shape and type of scales, but got {whole.format} "
            f"[{whole.n}, {whole.k}] and {one.format} [{one.n}, {one.k}]; keep them apart"
        )
    if one.permutation is not None and whole.permutation is None:
        order = torch.arange(one.k, dtype=torch.int32, device=one.codes.device)
        whole = replace(whole, permutation=order.repeat(whole.experts, 1))
    for name, tensor in whole.tensors.items():
        own = getattr(one, name)
        if own is None:  # an expert without act-order among others
            own = torch.arange(one.k, dtype=torch.int32, device=one.codes.device)
        tensor[number] = own
    return whole
