"""What is done to all layers of a model: replacing nn.Linear by quantized ones, and preparing them.
The layer itself is linear.py."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Container, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import nn

from humming.dispatch.intervals import TunedTable
from humming.errors import FormatError, LayoutError, LegalityError
from humming.float_layers import REPLACED, as_linear, tied_weights, told_of_floats
from humming.linear import HummingLinear, check_linear
from humming.moe.attach import convert_experts, found_experts, holds_experts
from humming.moe.experts import HummingExperts
from humming.quantize.quantizers import check_method, check_weight
from humming.spec.formats import QuantFormat
from humming.spec.naming import did_you_mean
from humming.state import ACTIVATIONS, layout_on, scales_follow, why_unserved
from humming.weight_reads import read_layers

SKIPPED = ("lm_head",)
"""What convert leaves as it is unless told otherwise."""


def convert(
    model: nn.Module,
    format: str = "int4g128",
    skip: Iterable[str] = SKIPPED,
    method: str = "absmax",
) -> nn.Module:
    """Replaces every nn.Linear of `model` in place, and its stacked experts, one after the
    other, and returns the model.

    So are layers of other classes that compute as nn.Linear does (float_layers.py), such as Conv1D
    of transformers. A layer is left as it is where its name or the last part of it matches a
    pattern of `skip` ("lm_head", "*.router"), where its weight is tied to another module's, where
    code of the model reads its weight (weight_reads.py), or where no kernel of its device takes its
    size. A layer used under two names stays one layer. A model that is itself an nn.Linear comes
    back as the new layer. `method` is quantize's. Raises FormatError for a format or method that is
    unknown or does not run here, and LayoutError, by the layer's name, for fp32 on CUDA or a weight
    that is not finite; then nothing is replaced. Warnings name a pattern of `skip` that no layer
    matches, layers whose size no kernel takes, and kinds of modules that keep large float weights
    though nobody skipped them, or say that nothing is replaced at all.
    """
    if not isinstance(model, nn.Module):
        raise LayoutError(f"convert takes an nn.Module, but got {type(model).__name__}")
    check_method(method)
    QuantFormat.parse(format)
    if isinstance(skip, str):
        raise LayoutError(
            f"skip takes a list of names, but got the string '{skip}'; use ['{skip}']"
        )
    patterns = tuple(skip)
    if type(model) is nn.Linear:
        _unfit(model, format)
        return HummingLinear.from_linear(model, format, method)
    _check_patterns(model, patterns)
    experts = found_experts(model, format, lambda name: _skipped(name, patterns))
    read = read_layers(model)
    places, unfit = _places(model, format, patterns, read)
    if unfit:
        warnings.warn(
            "a layer must have a size that the kernels of its device take, so these stay as they "
            f"are: {', '.join([*unfit.values()][:8])}{' ...' if len(unfit) > 8 else ''}",
            RuntimeWarning,
            stacklevel=2,
        )
    taken = {*places, *unfit, *(id(getattr(owner, attribute)) for owner, attribute in experts)}
    _tell_of_floats(model, taken, lambda name: _skipped(name, patterns), read)
    for owner, attribute in experts:
        convert_experts(owner, attribute, format, method)
    for shared in places.values():
        # No list holds the old layers, so that each is freed before the next is made.
        name, owner, attribute = shared[0]
        plain = as_linear(getattr(owner, attribute))
        assert plain is not None
        made = HummingLinear.from_linear(plain, format, method)
        made.name = name
        for _, owner, attribute in shared:
            setattr(owner, attribute, made)
    return model


def prepare(
    model: nn.Module,
    table: str | Path | TunedTable | None = None,
    m: int | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Module:
    """Binds every HummingLinear of `model` anew and compiles its kernels now; see the method.

    Raises LayoutError where the model has none.
    """
    layers = [module for module in model.modules() if isinstance(module, HummingLinear)]
    experts = [module for module in model.modules() if isinstance(module, HummingExperts)]
    for module in experts:
        module.prepare(table, m, dtype)
    if not layers and not experts:
        raise LayoutError("prepare needs a model with HummingLinear layers; call humming.convert")
    alike: dict[tuple[object, ...], HummingLinear] = {}
    for layer in layers:
        device, biased = layer.packed_codes.device, layer.bias is not None
        first = alike.setdefault((layer.spec, layer.dtype, biased, device), layer)
        if first is layer:
            layer.prepare(table, m, dtype)
        else:
            layer._bind_like(first)
    return model


def _places(
    model: nn.Module, format: str, patterns: tuple[str, ...], read: Container[int]
) -> tuple[dict[int, list[tuple[str, nn.Module, str]]], dict[int, str]]:
    """Of each layer that is to be replaced, by id, all (full name, owner, attribute); and the names
    of those whose size no kernel takes, with the reason. Raises as `_checked` does."""
    tied = tied_weights(model)
    places: dict[int, list[tuple[str, nn.Module, str]]] = {}
    unfit: dict[int, str] = {}
    for name, owner, attribute, layer, linear in _linears(model):
        if _skipped(name, patterns) or id(layer.weight) in tied or id(layer) in read:
            continue
        if id(layer) not in places:
            reason = _checked(name, linear, format)
            if reason:
                unfit[id(layer)] = f"{name} ({reason})"
                continue
        places.setdefault(id(layer), []).append((name, owner, attribute))
    return places, unfit


def _checked(name: str, linear: nn.Linear, format: str) -> str:
    """As `_unfit`, for a weight that is sound; LayoutError, by the layer's name, where it is not.

    All layers are checked before one is replaced, so that no model is left half converted.
    """
    try:
        reason = _unfit(linear, format)
        if not reason:
            check_linear(linear, format)
            check_weight(linear.weight)
    except (LayoutError, LegalityError) as error:
        raise LayoutError(f"{name}: {error}") from None
    return reason


def _unfit(linear: nn.Linear, format: str) -> str:
    """Why no kernel takes the size of `linear` on its device; "" where one does. Raises FormatError
    where none takes the format, LayoutError for a type that the device does not serve."""
    weight = linear.weight
    if weight.dtype not in ACTIVATIONS:
        return ""  # quantize says what it takes
    scales_follow(layout_on(weight.device, format), weight.dtype)
    n, k = weight.shape
    reason = why_unserved(format, n, k, weight.dtype, weight.device)
    if reason and (general := why_unserved(format, 1024, 4096, weight.dtype, weight.device)):
        raise FormatError(general)
    return f"n={n}, k={k}: {reason}" if reason else ""


def _linears(model: nn.Module) -> Iterable[tuple[str, nn.Module, str, nn.Module, nn.Linear]]:
    """(full name, owner, attribute, layer, it as an nn.Linear) of each layer that computes as one,
    under all of its names."""
    for prefix, owner in model.named_modules():
        for attribute, child in owner._modules.items():
            linear = None if child is None else as_linear(child)
            if child is not None and linear is not None:
                name = f"{prefix}.{attribute}" if prefix else attribute
                yield name, owner, attribute, child, linear


def _tell_of_floats(
    model: nn.Module, taken: set[int], skipped: Callable[[str], bool], read: Mapping[int, str]
) -> None:
    """Warns where nothing is replaced, or what stays is a large part of the model."""
    told = told_of_floats(model, taken, skipped, read)
    served = any(isinstance(m, (HummingLinear, HummingExperts)) for m in model.modules())
    if not taken and not served:
        told = f"nothing of {type(model).__name__} is replaced; {told or REPLACED}"
    if told:
        warnings.warn(told, RuntimeWarning, stacklevel=3)


def _check_patterns(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Warns of a pattern that matches nothing that has a weight, but for one that is skipped by
    default, as many models have no such layer."""
    named = model.named_modules(remove_duplicate=False)
    names = [
        name for name, module in named if name and (not module._modules or holds_experts(module))
    ]
    for pattern in patterns:
        if pattern in SKIPPED or any(_skipped(name, (pattern,)) for name in names):
            continue
        near = did_you_mean(pattern, (*names, *(name.rpartition(".")[2] for name in names)))
        warnings.warn(
            f"a pattern of `skip` must match a layer, but '{pattern}' matches none"
            f"{near or f'; layers are called such as {names[-1]!r}' if names else ''}",
            RuntimeWarning,
            stacklevel=3,
        )


def _skipped(name: str, patterns: tuple[str, ...]) -> bool:
    last = name.rpartition(".")[2]
    return any(fnmatchcase(part, pattern) for pattern in patterns for part in (name, last))
