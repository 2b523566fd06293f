"""Replace a model's nn.Linear layers by quantized ones. The layer itself is linear.py."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import nn

from humming.errors import LayoutError
from humming.linear import HummingLinear
from humming.spec.formats import QuantFormat
from humming.spec.layouts import LAYOUTS
from humming.state import ACTIVATIONS, layout_on, scales_follow

READS_WEIGHTS = (nn.TransformerEncoderLayer,)
"""Modules that hand the weights of their linear layers to a fused kernel instead of calling
them."""


def convert(
    model: nn.Module, format: str = "int4g128", skip: Iterable[str] = ("lm_head",)
) -> nn.Module:
    """Replaces every nn.Linear of `model` in place, one after the other, and returns the model.

    A layer is left as it is where its name or the last part of it matches a pattern of `skip`
    ("lm_head", "*.router"), where it is a subclass of nn.Linear (whose owner may read its weight),
    where its weight is tied to another module's, where its owner is known to read its weight
    (READS_WEIGHTS), or where its device's layout does not take its
    `in_features`, a multiple of 32 on the CPU and of 8 on CUDA (a warning names those). A layer
    used under two names stays one layer. A model that is itself an nn.Linear comes back as the new
    layer. Raises FormatError for a format that does not run here, LayoutError for fp32 on CUDA;
    then nothing is replaced.
    """
    QuantFormat.parse(format)
    if isinstance(skip, str):
        raise LayoutError(
            f"skip takes a list of names, but got the string '{skip}'; use ['{skip}']"
        )
    patterns = tuple(skip)
    if type(model) is nn.Linear:
        return HummingLinear.from_linear(model, format)
    tied = _tied_weights(model)
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    unfit: list[str] = []
    for name, owner, attribute, linear in _linears(model):
        if _skipped(name, patterns) or id(linear.weight) in tied:
            continue
        reason = _unfit(linear, format)
        if reason:
            unfit.append(f"{name} ({reason})")
        else:
            places.setdefault(id(linear), []).append((owner, attribute))
    for shared in places.values():
        # No list holds the old layers, so that each is freed before the next is made.
        owner, attribute = shared[0]
        layer = HummingLinear.from_linear(getattr(owner, attribute), format)
        for owner, attribute in shared:
            setattr(owner, attribute, layer)
    if unfit:
        warnings.warn(
            "in_features must be a multiple of what the kernels take at once, so these stay as "
            f"they are: {', '.join(unfit[:8])}{' ...' if len(unfit) > 8 else ''}",
            RuntimeWarning,
            stacklevel=2,
        )
    return model


def _unfit(linear: nn.Linear, format: str) -> str:
    """Why no layout of its device takes `linear`; "" where one does. Raises LayoutError for a type
    that the device does not serve."""
    layout = layout_on(linear.weight.device, format)
    multiple = LAYOUTS[layout].k_multiple
    if linear.in_features % multiple:
        return f"k={linear.in_features}, k % {multiple} != 0"
    if linear.weight.dtype in ACTIVATIONS:
        scales_follow(layout, linear.weight.dtype)
    return ""


def _linears(model: nn.Module) -> Iterable[tuple[str, nn.Module, str, nn.Linear]]:
    """(full name, owner, attribute, layer) of each plain nn.Linear, under all of its names."""
    for prefix, owner in model.named_modules():
        for attribute, child in owner._modules.items():
            if type(child) is nn.Linear and not isinstance(owner, READS_WEIGHTS):
                yield f"{prefix}.{attribute}" if prefix else attribute, owner, attribute, child


def _tied_weights(model: nn.Module) -> set[int]:
    """Ids of parameters that two different modules hold."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return {parameter for parameter, count in holders.items() if count > 1}


def _skipped(name: str, patterns: tuple[str, ...]) -> bool:
    last = name.rpartition(".")[2]
    return any(fnmatchcase(part, pattern) for pattern in patterns for part in (name, last))
