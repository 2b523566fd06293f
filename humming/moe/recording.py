"""`humming.record_routing`: how tokens fall on a model's experts while it serves, counted on the
device. What is made of the counts is spec/routing.py."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.errors import LayoutError, UsageError
from humming.moe.experts import HummingExperts
from humming.spec.routing import routing_of


class RoutingRecord:
    """What was counted: `counts` of each layer of experts, and the routing that they are."""

    def __init__(self, layers: dict[str, HummingExperts]) -> None:
        self.layers = layers
        self._counts = {
            name: torch.zeros(layer.up.spec.experts, dtype=torch.int64, device=_device(layer))
            for name, layer in layers.items()
        }

    @property
    def counts(self) -> dict[str, list[int]]:
        """Tokens of each expert, by layer; waits for the device."""
        return {name: counts.tolist() for name, counts in self._counts.items()}

    @property
    def routing(self) -> str:
        """The routing of the mean layer: each layer's busiest expert counts with the others'."""
        sorted_counts = [sorted(counts, reverse=True) for counts in self.counts.values()]
        most = max(map(len, sorted_counts), default=0)
        same = [counts for counts in sorted_counts if len(counts) == most]
        return routing_of(sum(place) for place in zip(*same, strict=True))

    def save(self, path: str | Path) -> Path:
        """Writes `{"routing": .., "counts": {layer: [..]}}` as JSON."""
        path = Path(path)
        path.write_text(json.dumps({"routing": self.routing, "counts": self.counts}, indent=1))
        return path

    def apply(self) -> None:
        """Has each layer looked up in tables by the routing that it was seen to have."""
        for name, layer in self.layers.items():
            layer.take_routing(routing_of(self.counts[name]))

    def add(self, name: str, ids: torch.Tensor) -> None:
        """Counts ids [m, top_k] of this rank's experts, on their device."""
        counts, first = self._counts[name], self.layers[name].first_expert
        own = ids.reshape(-1).to(torch.int64) - first
        inside = (own >= 0) & (own < len(counts))
        counts.index_add_(0, own.clamp(0, len(counts) - 1), inside.to(torch.int64))


@contextmanager
def record_routing(model: nn.Module, path: str | Path | None = None) -> Iterator[RoutingRecord]:
    """Counts, inside the block, how tokens fall on the experts of `model`, a layer each; written to
    `path` at its end.

    A graph that torch.compile made before the block counts nothing, so that one warning says when
    nothing was counted; no file is written then, as it would say that tokens fall evenly. Raises
    LayoutError where the model has no HummingExperts, UsageError where `path` cannot be written.
    """
    layers = {
        name or "experts": module
        for name, module in model.named_modules()
        if isinstance(module, HummingExperts)
    }
    if not layers:
        raise LayoutError(
            "record_routing needs a model with HummingExperts; call humming.convert first"
        )
    if path is not None:
        _check_file(Path(path))
    record = RoutingRecord(layers)
    handles = [_watch(layer, name, record) for name, layer in layers.items()]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()
        counted = any(map(sum, record.counts.values()))
        if path is not None and counted:
            record.save(path)
    if not counted:
        unwritten = "" if path is None else f", so that '{path}' was not written"
        warnings.warn(
            f"record_routing counted no token{unwritten}: run the model inside the block, and "
            "where it was compiled before, call torch.compiler.reset() and compile it inside the "
            "block",
            RuntimeWarning,
            stacklevel=3,
        )


def _check_file(path: Path) -> None:
    if not path.parent.is_dir() or path.is_dir():
        wrong = "is a folder itself" if path.is_dir() else "is in none"
        raise UsageError(
            f"path must be a file in a folder that exists, but '{path}' {wrong}; make the folder "
            "or name another file"
        )


def _watch(layer: HummingExperts, name: str, record: RoutingRecord) -> Any:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        record.add(name, kwargs["top_k_index"] if "top_k_index" in kwargs else args[1])

    return layer.register_forward_pre_hook(hook, with_kwargs=True)


def _device(layer: HummingExperts) -> torch.device:
    return layer.up.packed_codes.device
