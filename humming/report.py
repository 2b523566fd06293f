"""report: what serves each layer of a model, from where, and how fast it was measured to be.

Binding is plan.py; lines while serving are dispatch/notices.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from humming.dispatch.dispatcher import Dispatch
from humming.dispatch.intervals import Interval, TunedTable
from humming.dispatch.notices import command_for
from humming.errors import LayoutError
from humming.linear import HummingLinear
from humming.moe.plan import bound_experts
from humming.moe.stack import ExpertStack
from humming.plan import Plan, place_of
from humming.serving.binding import bound
from humming.spec.naming import counted
from humming.spec.problem import M_END
from humming.state import ACTIVATIONS

_Layer = HummingLinear | ExpertStack


@dataclass(frozen=True)
class Served:
    """What serves m of [m_low, m_high): a config, where it comes from, and what it was measured to
    take at `measured_m`; `speedup` is over the heuristic there. None where it was not measured.

    `transfer` says from which tuned problem a neighbour's config was taken, and what to expect."""

    m_low: int
    m_high: int
    family: str
    config: str
    source: str
    record: str | None
    measured_m: int | None
    us: float | None
    speedup: float | None
    transfer: str | None = None


@dataclass(frozen=True)
class LayerReport:
    """Layers of one shape: their names, weight and what serves them. `experts` is how many a
    projection of a mixture of experts has; None for a linear layer."""

    names: tuple[str, ...]
    format: str
    n: int
    k: int
    dtype: str
    place: str
    nbytes: int
    batch_invariant: bool
    intervals: tuple[Served, ...]
    tune_with: str | None
    experts: int | None = None

    def __str__(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        count = "" if self.experts is None else f"experts={self.experts} "
        lines = [
            f"{self.names[0]}{more}: {self.format} {count}n={self.n} k={self.k} {self.dtype} on "
            f"{self.place}, {_size(self.nbytes)}{', batch-invariant' * self.batch_invariant}"
        ]
        lines += [f"    {_interval(served)}" for served in self.intervals]
        if self.tune_with:
            lines.append(f"    tune it with `{self.tune_with}`")
        return "\n".join(lines)


@dataclass(frozen=True)
class ModelReport:
    """All layers of a model that have packed weights, those alike together."""

    layers: tuple[LayerReport, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of packed weights."""
        return sum(layer.nbytes for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"nbytes": self.nbytes, "layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        count = sum(len(layer.names) for layer in self.layers)
        head = f"{counted(count, 'layer')}, {_size(self.nbytes)} of packed weights"
        return "\n".join([head, *(str(layer) for layer in self.layers)])


def report(model: nn.Module) -> ModelReport:
    """What serves each HummingLinear, and each projection of experts, of `model` at this moment;
    layers that are not bound yet are bound, and nothing is compiled. Raises LayoutError where there
    is none."""
    if not isinstance(model, nn.Module):
        raise LayoutError(f"report takes an nn.Module, but got {type(model).__name__}")
    alike: dict[tuple[object, ...], list[tuple[str, _Layer]]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, (HummingLinear, ExpertStack)):
            device, biased = layer.packed_codes.device, layer.bias is not None
            key = (layer.spec, layer.dtype, biased, device)
            alike.setdefault(key, []).append((name or "layer", layer))
    if not alike:
        raise LayoutError(
            "report needs a model with HummingLinear layers or experts; call humming.convert"
        )
    return ModelReport(tuple(_of(named) for named in alike.values()))


def _of(named: Sequence[tuple[str, _Layer]]) -> LayerReport:
    first = named[0][1]
    device, biased = first.packed_codes.device, first.bias is not None
    place = place_of(device)
    plan: Plan
    if isinstance(first, ExpertStack):
        plan, experts = bound_experts(first.spec, first.dtype, biased, place), first.spec.experts
    else:
        plan, experts = bound(first.spec, first.dtype, biased, place), None
    served = tuple(_served(plan, dispatch) for dispatch in plan.dispatches)
    untuned = any(dispatch.untuned for dispatch in plan.dispatches)
    return LayerReport(
        names=tuple(name for name, _ in named),
        format=first.spec.format,
        n=first.spec.n,
        k=first.spec.k,
        dtype=ACTIVATIONS[first.dtype],
        place=plan.place,
        nbytes=sum(tensor.nbytes for _, layer in named for tensor in layer.buffers()),
        batch_invariant=plan.problem.batch_invariant,
        intervals=served,
        tune_with=command_for(plan.problem, plan.place) if untuned else None,
        experts=experts,
    )


def _served(plan: Plan, dispatch: Dispatch) -> Served:
    found = next((i for i in _measured(plan.table) if i.record == dispatch.record), None)
    if dispatch.transfer is not None:
        found = None  # it was measured for another problem
    tier = f" {dispatch.tier}" if dispatch.tier else ""
    return Served(
        dispatch.m_low,
        dispatch.m_high,
        dispatch.config.family,
        str(dispatch.config),
        dispatch.source + tier,
        dispatch.record,
        found.m if found else None,
        found.us if found else None,
        found.heuristic_us / found.us if found and found.us else None,
        str(dispatch.transfer) if dispatch.transfer else None,
    )


def _measured(table: TunedTable | None) -> Iterator[Interval]:
    for entry in table.entries if table else ():
        yield from entry.intervals


def _interval(served: Served) -> str:
    high = "" if served.m_high >= M_END else str(served.m_high - 1)
    text = f"m {served.m_low}..{high}: {served.config} ({served.transfer or served.source})"
    if served.us is not None and served.speedup is not None:
        text += f", {served.us:.1f} us at m={served.measured_m}, {served.speedup:.2f} x as fast as "
        text += "the heuristic"
    return text


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes < 2**30 else f"{nbytes / 2**30:.2f} GiB"
