"""attach: a model whose layers a checkpoint holds quantized gets them as they are stored there.

Loading a model with transformers is huggingface.py; quantizing float layers is convert.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from humming.checkpoints.folder import Checkpoint
from humming.checkpoints.layer import CheckpointLayer
from humming.errors import CheckpointError, LayoutError
from humming.lacking import refuse_absent, refuse_without_bias, warn_of_absent
from humming.linear import HummingLinear
from humming.moe.attach import stacked_sizes
from humming.moe.checkpoints import check_experts, read_experts
from humming.state import ACTIVATIONS, layout_on, scales_follow

_EXPERT = re.compile(r"(.+)\.experts\.\d+\.[^.]+")
_NAMED = 4
"""Names that a message lists at the most."""


@dataclass(frozen=True)
class Place:
    """Where a layer of a checkpoint stands in a model: its module is `owner.attribute`.

    stored   its name in the checkpoint; of experts that of the block around them
    experts  whether it is a module of all experts of a block, instead of one linear layer
    """

    stored: str
    owner: nn.Module
    attribute: str
    experts: bool = False

    @property
    def module(self) -> nn.Module:
        """What stands there now."""
        return self.owner._modules[self.attribute]  # type: ignore[return-value]

    @property
    def stem(self) -> str:
        """What the names of its tensors in the checkpoint begin with."""
        return f"{self.stored}.experts." if self.experts else f"{self.stored}."

    def read(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> nn.Module:
        """The layer as the checkpoint holds it, on `device`."""
        if self.experts:
            return read_experts(checkpoint, self.stored, device, dtype).eval()
        return _layer(checkpoint.layer(self.stored), device, dtype)


def attach(model: nn.Module, checkpoint: str | Path | None = None) -> nn.Module:
    """Gives each layer of `model` that the checkpoint in the folder `checkpoint` holds quantized
    the weight that is stored there, as a HummingLinear (experts as HummingExperts) on the layer's
    device; returns the model.

    None takes the folder that transformers loaded the model from. Layers that the checkpoint holds
    as floats stay. A layer's own weight is freed before the next one is read. Raises
    CheckpointError where the checkpoint is not one of this model, or not quantized, or lacks a
    layer's scales, codes or bias, or an expert's, or a layer that it quantizes in other blocks, and
    LayoutError where a layer's device does not serve its type; then nothing is replaced. What only
    a tensor's numbers tell, such as scales that are not finite, is found when its layer is read. A
    warning names other layers that the checkpoint lacks.
    """
    if not isinstance(model, nn.Module):
        raise LayoutError(f"attach takes an nn.Module, but got {type(model).__name__}")
    stored = Checkpoint(_folder_of(model) if checkpoint is None else checkpoint)
    found = places(model, stored)
    spellings = partial(_spellings, prefix=getattr(model, "base_model_prefix", ""))
    warn_of_absent(model, [place.module for place in found], stored, spellings)
    for place in found:
        _check_served(place, *_where(place.module, model, stored.dtype))
    for place in found:
        old = place.module
        device, dtype = _where(old, model, stored.dtype)
        place.owner._modules[place.attribute] = None
        del old
        place.owner._modules[place.attribute] = place.read(stored, device, dtype)
    return model.eval()


def places(model: nn.Module, checkpoint: Checkpoint) -> list[Place]:
    """Where the quantized layers of `checkpoint` stand in `model`; see `attach` for errors."""
    modules, prefix = dict(model.named_modules()), getattr(model, "base_model_prefix", "")
    for name, module in modules.items():
        if hasattr(module, "in_features"):
            for stored in _spellings(name, prefix):
                checkpoint.refuse_torn(stored)
    if not checkpoint.quantized_names:
        raise CheckpointError(
            f"{checkpoint.path} must hold a quantized model, but has no quantized layers; use "
            "humming.convert(model, format) to quantize a float one"
        )
    found: dict[str, Place] = {}
    lost: list[str] = []
    served: list[tuple[str, nn.Module]] = []
    for stored in checkpoint.quantized_names:
        place = _place(stored, modules, prefix)
        if place is None:
            lost.append(stored)
        else:
            served.append((stored, found.setdefault(place.stem, place).module))
    if lost:
        more = " ..." if len(lost) > _NAMED else ""
        raise CheckpointError(
            f"the model must have a linear layer for each that {checkpoint.path} quantizes, but "
            f"lacks {', '.join(lost[:_NAMED])}{more}; build the model from that folder's config"
        )
    _check_sizes(found.values(), checkpoint.path)
    refuse_without_bias(served, checkpoint)
    there = [module for _, module in served]
    refuse_absent(model, there, checkpoint, partial(_spellings, prefix=prefix))
    return list(found.values())


def fill(place: Place, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
    """Gives the HummingLinear at `place`, which hooks may know, the weight that is stored."""
    made, layer = _layer(checkpoint.layer(place.stored), device, dtype), place.module
    if not isinstance(layer, HummingLinear):
        raise LayoutError(f"fill takes a HummingLinear, but got {type(layer).__name__}")
    layer._fill(made._packed(), made.bias, dtype)


def _place(stored: str, modules: Mapping[str, nn.Module], prefix: str) -> Place | None:
    expert = _EXPERT.fullmatch(stored)
    for name in _spellings(stored, prefix):
        if hasattr(modules.get(name), "in_features"):
            owner, _, attribute = name.rpartition(".")
            return Place(stored, modules[owner], attribute)
        inner = _EXPERT.fullmatch(name)
        if inner and expert and inner[1] in modules and "experts" in modules[inner[1]]._modules:
            return Place(expert[1], modules[inner[1]], "experts", experts=True)
    return None


def _layer(layer: CheckpointLayer, device: torch.device, dtype: torch.dtype) -> HummingLinear:
    weight = layer.quantized_weight().to(device)
    bias = None if layer.bias is None else layer.bias.to(device)
    return HummingLinear.from_quantized(weight, bias, dtype).eval()


def _spellings(stored: str, prefix: str) -> Iterator[str]:
    """The names by which a model may know a layer: with or without its base model's prefix."""
    yield stored
    if prefix:
        yield f"{prefix}.{stored}"
        yield stored.removeprefix(f"{prefix}.")


def _check_sizes(found: Iterable[Place], path: Path) -> None:
    headers = Checkpoint(path, headers_only=True)
    for place in found:
        if place.experts:
            _check_experts(place, headers)
            continue
        linear: Any = place.module
        sizes = (linear.out_features, linear.in_features)
        if headers.layer(place.stored).shape != sizes:
            raise CheckpointError(
                f"{place.stored} must have the sizes of the model's layer, {list(sizes)}, but is "
                f"{list(headers.layer(place.stored).shape)} in {path}; use its own config"
            )


def _check_experts(place: Place, headers: Checkpoint) -> None:
    sizes = check_experts(headers, place.stored)
    own = stacked_sizes(place.module)
    if own is not None and own != sizes:
        raise CheckpointError(
            f"{place.stored} must have as many weights as the model's experts, {own[0]} and "
            f"{own[1]}, but has {sizes[0]} and {sizes[1]} in {headers.path}; use its own config"
        )


def _check_served(place: Place, device: torch.device, dtype: torch.dtype) -> None:
    """Raises LayoutError, by the layer's name, where `device` does not serve layers of `dtype`."""
    try:
        scales_follow(layout_on(device, "int8"), dtype)  # the same for every layout of a device
    except LayoutError as error:
        raise LayoutError(f"{place.stored}: {error}") from None


def _where(
    old: nn.Module, model: nn.Module, dtype: torch.dtype
) -> tuple[torch.device, torch.dtype]:
    """Device and type for the layer that replaces `old`: its own, else the model's."""
    own = [*old.parameters(), *old.buffers()]
    known = own or [*model.parameters(), *model.buffers()]
    device = known[0].device if known else torch.device("cpu")
    floats = (t.dtype for t in (*own, *model.parameters()) if t.dtype in ACTIVATIONS)
    return device, next(floats, dtype)


def _folder_of(model: nn.Module) -> Path:
    config: Any = getattr(model, "config", None)
    values: Mapping[str, Any] = {} if config is None else vars(config)
    named = str(values.get("_name_or_path") or getattr(model, "name_or_path", "") or "")
    if not named or not Path(named).is_dir():
        raise CheckpointError(
            f"attach needs the checkpoint's folder, but the model says "
            f"{f'{named!r}, which is none' if named else 'none'}; name it: "
            "humming.attach(model, checkpoint=...)"
        )
    return Path(named)
