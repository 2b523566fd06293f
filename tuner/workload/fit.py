"""Sentences on layers that a format's groups or blocks, or an engine's fusing, do not fit. They are
planned all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from humming.spec.formats import QuantFormat
from tuner.workload.layers import Layer

Built = tuple[Layer, tuple[int, ...]]
"""A layer and the widths of the parts stacked along its n, each of which keeps a block grid of its
own.
"""


def fit_warnings(built: Sequence[Built], tp: int) -> list[str]:
    """One sentence per layer and axis that is no multiple of its group or block; one per layer with
    permuted k.
    """
    sentences: list[str] = []
    for layer, widths in built:
        if not layer.quantized:
            continue
        sentences += [_uneven(layer, *found, tp) for found in _misfits(layer, widths)]
        if layer.act_order:
            sentences.append(
                f"{layer.name}: the checkpoint permutes k (act-order), which a kernel must support"
            )
    return sentences


def _misfits(layer: Layer, widths: tuple[int, ...]) -> list[tuple[str, int, str, int]]:
    """(axis, extent, "groups" or "blocks", size) where the size does not divide the extent."""
    quant = QuantFormat.parse(layer.format)
    weight, activation = quant.weight, quant.activation
    size = weight.group_size
    found: list[tuple[str, int, str, int]] = []
    if size and weight.granularity == "block":
        found += [("n", width, "blocks", size) for width in dict.fromkeys(widths) if width % size]
    if size and layer.k % size:
        found.append(("k", layer.k, f"{weight.granularity}s", size))
    group = activation.group_size if activation else None
    if group and group != size and layer.k % group:
        found.append(("k", layer.k, "activation groups", group))
    return found


def _uneven(layer: Layer, axis: str, extent: int, kind: str, size: int, tp: int) -> str:
    where = f"{axis}={extent}" if axis == "k" or extent == layer.n else f"a part of n={extent}"
    what = f"{layer.name}: {where} is {extent / size:g} {kind} of {size} ({layer.format})"
    if tp > 1:
        return (
            f"{what} on each of {tp} ranks, so that one straddles two ranks; a smaller --tp may fit"
        )
    return f"{what}, so that the last one is not full"


def unfused_warnings(built: Sequence[Built], fused: set[str]) -> list[str]:
    """A sentence where a checkpoint stores the parts of a fused layer in different formats."""
    apart = list(dict.fromkeys(layer.name for layer, _ in built if layer.name not in fused))
    if not apart:
        return []
    return [
        f"{', '.join(apart)}: planned apart, as the checkpoint does not store the parts of a fused "
        f"layer alike"
    ]
