"""Replace a model's nn.Linear layers by quantized ones. The layer itself is linear.py."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from fnmatch import fnmatchcase

from torch import nn

from humming.errors import LayoutError
from humming.linear import HummingLinear
from humming.quantize.layout import K_MULTIPLE
from humming.spec.formats import QuantFormat


def convert(
    model: nn.Module, format: str = "int4g128", skip: Iterable[str] = ("lm_head",)
) -> nn.Module:
    """Replaces every nn.Linear of `model` in place, one after the other, and returns the model.

    A layer is left as it is where its name or the last part of it matches a pattern of `skip`
    ("lm_head", "*.router"), where it is a subclass of nn.Linear (whose owner may read its weight),
    where its weight is tied to another module's, or where `in_features % 32 != 0` (a warning names
    those). A layer used under two names stays one layer. A model that is itself an nn.Linear comes
    back as the new layer. Raises FormatError for a format that does not run here.
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
    unfit: list[str] = []
    made: dict[nn.Module, HummingLinear] = {}
    for name, owner, attribute, linear in list(_linears(model)):
        if _skipped(name, patterns) or id(linear.weight) in tied:
            continue
        if linear.in_features % K_MULTIPLE:
            unfit.append(f"{name} (k={linear.in_features})")
            continue
        if linear not in made:
            made[linear] = HummingLinear.from_linear(linear, format)
        setattr(owner, attribute, made[linear])
    if unfit:
        warnings.warn(
            f"`in_features % {K_MULTIPLE} == 0` must hold, so these stay as they are: "
            f"{', '.join(unfit[:8])}{' ...' if len(unfit) > 8 else ''}",
            RuntimeWarning,
            stacklevel=2,
        )
    return model


def _linears(model: nn.Module) -> Iterable[tuple[str, nn.Module, str, nn.Linear]]:
    """(full name, owner, attribute, layer) of each plain nn.Linear, under all of its names."""
    for prefix, owner in model.named_modules():
        for attribute, child in owner._modules.items():
            if type(child) is nn.Linear:
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
