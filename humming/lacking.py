"""What a checkpoint lacks of the model that it is for: whole layers, and biases. Where its layers
stand in the model is attach.py.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from humming.checkpoints.folder import Checkpoint
from humming.errors import CheckpointError
from humming.moe.attach import holds_experts

Spellings = Callable[[str], Iterable[str]]
"""A module's name -> the names by which a checkpoint may know it."""

_BIASES: Mapping[str, tuple[str, ...]] = {
    "down_proj": ("down_proj_bias",),
    "w2": ("down_proj_bias",),
}
_FIRST = ("gate_up_proj_bias", "up_proj_bias")
"""An expert's part -> what modules of all experts call its bias; parts before the activation."""
_NAMED = 4
"""Names that a message lists at the most."""


def refuse_without_bias(served: Iterable[tuple[str, nn.Module]], checkpoint: Checkpoint) -> None:
    """Raises CheckpointError, by the tensor's name, for a quantized layer without a bias whose
    module in the model has one; `served` are (layer, module)."""
    for stored, module in served:
        part = stored.rpartition(".")[2]
        linear = hasattr(module, "in_features")
        names = ("bias",) if linear else _BIASES.get(part, _FIRST)
        if any(isinstance(getattr(module, name, None), torch.Tensor) for name in names):
            checkpoint.refuse_without_bias(stored)


def refuse_absent(
    model: nn.Module, served: Iterable[nn.Module], checkpoint: Checkpoint, spellings: Spellings
) -> None:
    """Raises CheckpointError for a layer of which `checkpoint` has no tensor though it quantizes
    the same layer of other blocks: those are among `served`, the modules of quantized layers."""
    for name, alike in _absent(model, served, checkpoint, spellings):
        if alike:
            raise CheckpointError(
                f"{checkpoint.path} must hold the layer {name}, as it holds {alike}, but has no "
                "weight of it; download the checkpoint again"
            )


def warn_of_absent(
    model: nn.Module, served: Iterable[nn.Module], checkpoint: Checkpoint, spellings: Spellings
) -> None:
    """Names layers of `model` of which `checkpoint` has no tensor, also where it need not: an
    adapter's, a head of another task."""
    found = [name for name, _ in _absent(model, served, checkpoint, spellings)]
    lost = [name for name in found if not _known_otherwise(name, checkpoint)]
    if lost:
        more = " ..." if len(lost) > _NAMED else ""
        warnings.warn(
            f"{checkpoint.path} has no weight of {', '.join(lost[:_NAMED])}{more}: what the model "
            "has there stays as it is",
            RuntimeWarning,
            stacklevel=3,
        )


def _absent(
    model: nn.Module, served: Iterable[nn.Module], checkpoint: Checkpoint, spellings: Spellings
) -> Iterator[tuple[str, str]]:
    """(name, the same layer of another block that is served, or "") of each layer without a tensor
    in `checkpoint`. A layer that is tied to one with tensors has them."""
    modules: dict[nn.Module, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        modules.setdefault(module, []).append(name)
    there = set(served)
    same = {_numberless(name): name for module in there for name in modules.get(module, ())}
    held = {
        module
        for module, names in modules.items()
        if module in there
        or any(checkpoint.holds(stored) for name in names for stored in spellings(name))
    }
    shared = {id(t) for module in held for t in _tensors(module, recurse=False)}
    for module, names in modules.items():
        alike = same.get(_numberless(names[0]), "")
        own = _tensors(module)
        if module in held or not own or not (alike or _is_layer(module)):
            continue
        if not any(id(tensor) in shared for tensor in own) and not _may_lack(model, names):
            yield names[0], alike


def _is_layer(module: nn.Module) -> bool:
    return hasattr(module, "in_features") or holds_experts(module)


def _tensors(module: nn.Module, recurse: bool = True) -> list[torch.Tensor]:
    return [*module.parameters(recurse), *module.buffers(recurse)]


def _may_lack(model: Any, names: Iterable[str]) -> bool:
    """Whether transformers says that a checkpoint needs no weight of the module called `names`."""
    tied: Iterable[str] = getattr(model, "all_tied_weights_keys", None) or ()
    unneeded: Iterable[str] = getattr(model, "_keys_to_ignore_on_load_missing", None) or ()
    weights = [f"{name}.weight" for name in names]
    return any(
        weight in tied or any(re.search(pattern, weight) for pattern in unneeded)
        for weight in weights
    )


def _known_otherwise(name: str, checkpoint: Checkpoint) -> bool:
    """Whether a layer of another path has the same end: transformers renames parts of some models.
    An end begins before the first number ("blocks.0.attn.qkv")."""
    steps = name.split(".")
    at = next((at for at, step in enumerate(steps) if step.isdecimal()), len(steps) - 1)
    return checkpoint.holds_end(".".join(steps[max(0, at - 1) :]))


def _numberless(name: str) -> str:
    """`name` with a star for each number between dots."""
    return ".".join("*" if step.isdecimal() else step for step in name.split("."))
