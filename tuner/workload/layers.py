"""Layer, LayerGroup and Workload: what one rank computes, merged by shape, and its JSON form. No
files, no config keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from humming.spec.routing import UNIFORM


@dataclass(frozen=True)
class Layer:
    """One fused linear layer of one kind, as one tensor-parallel rank holds it.

    `n` and `k` are per rank; `count` is in how many of the model's layers it occurs with this
    `format`. `format` is a quantization format ("int4g128") where `quantized`, else the float type
    that the layer is kept in ("bf16"). `op` is "dense" or "moe"; `experts` and `top_k` are None for
    dense ones. `act_order` is True where the checkpoint permutes k by activation.
    """

    name: str
    op: str
    n: int
    k: int
    count: int
    experts: int | None
    top_k: int | None
    format: str
    quantized: bool
    act_order: bool = False


@dataclass(frozen=True)
class LayerGroup:
    """A row of the plan: all layers that share op, n, k, experts, top_k and format. `layers` are
    their names.
    """

    op: str
    n: int
    k: int
    count: int
    experts: int | None
    top_k: int | None
    format: str
    layers: tuple[str, ...]
    act_order: bool = False


@dataclass(frozen=True)
class Workload:
    """A model as one rank sees it: `problems` are quantized, `unquantized` are kept in `dtype`
    ("bf16", "fp16", "fp32").

    `warnings` are whole sentences: shapes that no group or block fits, values that were taken for
    granted; `routing` names how tokens fall on experts; `batch_invariant` asks for the same bits of
    a row whatever m, of dense layers.
    """

    model: str
    tp: int
    dtype: str
    problems: tuple[LayerGroup, ...]
    unquantized: tuple[LayerGroup, ...]
    warnings: tuple[str, ...]
    routing: str = UNIFORM
    batch_invariant: bool = False


def merge(layers: Iterable[Layer]) -> tuple[LayerGroup, ...]:
    """One group per distinct (op, n, k, experts, top_k, format), counts added, in order of first
    appearance.
    """
    groups: dict[tuple[object, ...], LayerGroup] = {}
    for layer in layers:
        shape = (layer.op, layer.n, layer.k, layer.experts, layer.top_k, layer.format)
        key = (*shape, layer.act_order)
        known = groups.get(key)
        groups[key] = _widened(known, layer) if known else _group(layer)
    return tuple(groups.values())


def _group(layer: Layer) -> LayerGroup:
    return LayerGroup(
        layer.op,
        layer.n,
        layer.k,
        layer.count,
        layer.experts,
        layer.top_k,
        layer.format,
        (layer.name,),
        layer.act_order,
    )


def _widened(group: LayerGroup, layer: Layer) -> LayerGroup:
    names = group.layers if layer.name in group.layers else (*group.layers, layer.name)
    return replace(group, count=group.count + layer.count, layers=names)


def to_json(workload: Workload) -> dict[str, Any]:
    """`workload` in the form of `plan --json`: model, tp, problems, unquantized, warnings."""
    return {
        "model": workload.model,
        "tp": workload.tp,
        "problems": [row(group) for group in workload.problems],
        "unquantized": [row(group) for group in workload.unquantized],
        "warnings": list(workload.warnings),
    }


def row(group: LayerGroup) -> dict[str, Any]:
    """One group as a row of `plan --json`."""
    return {
        "op": group.op,
        "n": group.n,
        "k": group.k,
        "count": group.count,
        "experts": group.experts,
        "top_k": group.top_k,
        "format": group.format,
        "layers": list(group.layers),
    }
