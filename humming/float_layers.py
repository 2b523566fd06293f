"""The float layers of a model that are linear, whatever their class, and what stays float. Which of
the linear ones are replaced is convert.py."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import suppress

import torch
from torch import nn
from torch.nn import functional

from humming.moe.attach import holds_experts

_OTHERS = (nn.Embedding, nn.EmbeddingBag, nn.modules.conv._ConvNd)
"""What holds large floats and is nothing to quantize."""
_LARGE = 100  # a kind is told of from one part in so many of the model on
_NARROW = 32  # and of as many rows and columns: no table of a few numbers a channel
_NAMED = 4  # kinds that a warning lists at the most
REPLACED = (
    "convert replaces nn.Linear, what computes as that does, and experts that are called with "
    "(x, ids, weights)"
)


def as_linear(module: nn.Module) -> nn.Linear | None:
    """`module` where it is an nn.Linear; one that shares its weight where it is another class that
    computes the same, such as Conv1D and FalconLinear of transformers; else None.

    A subclass that leaves `forward` alone is there to be told apart, and stays.
    """
    if type(module) is nn.Linear:
        return module
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    alone = not module._modules and not module._buffers and "forward" not in vars(module)
    if not alone or {*module._parameters} != {"weight", "bias"} or weight is None:
        return None
    if weight.ndim != 2 or 0 in weight.shape or not weight.is_floating_point():
        return None
    turned = not isinstance(module, nn.Linear)
    known = hasattr(module, "nf") if turned else type(module).forward is not nn.Linear.forward
    if not known or not _computes_linear(module, weight, bias, turned):
        return None
    n, k = weight.T.shape if turned else weight.shape
    linear = nn.Linear(k, n, bias is not None, device="meta", dtype=weight.dtype)
    own = weight.detach().T if turned else weight
    linear.weight = nn.Parameter(own, weight.requires_grad) if turned else weight
    linear.bias = bias  # type: ignore[assignment]
    return linear.train(module.training)


def _computes_linear(
    module: nn.Module, weight: torch.Tensor, bias: torch.Tensor | None, turned: bool
) -> bool:
    """Whether `module`, a copy of it that is small, gives what nn.Linear gives of its weight, or of
    the transposed one where it is `turned`."""
    sizes = dict(zip(weight.shape, (24, 40), strict=True))  # one where both are the same
    draw = torch.Generator().manual_seed(1)
    shape = [sizes[size] for size in weight.shape]
    small = torch.randn(shape, generator=draw)
    wanted = small.T if turned else small
    shift = None if bias is None else torch.randn(len(wanted), generator=draw)
    x = torch.randn(2, 3, wanted.shape[1], generator=draw)
    with suppress(Exception), torch.inference_mode():
        probe = copy.copy(module)
        for name, value in vars(module).items():
            if type(value) is int and value in sizes:
                vars(probe)[name] = sizes[value]
        parts = {"weight": small, "bias": shift}
        vars(probe)["_parameters"] = {
            name: None if part is None else nn.Parameter(part) for name, part in parts.items()
        }
        out = type(module).forward(probe, x)
        return out.dtype == x.dtype and torch.allclose(
            out, functional.linear(x, wanted, shift), 1e-4, 1e-4
        )
    return False


def tied_weights(model: nn.Module) -> set[int]:
    """Ids of parameters that two different modules hold."""
    holders: dict[int, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            holders[id(parameter)] = holders.get(id(parameter), 0) + 1
    return {parameter for parameter, count in holders.items() if count > 1}


def told_of_floats(
    model: nn.Module, replaced: Set[int], skipped: Callable[[str], bool], read: Mapping[int, str]
) -> str:
    """Which kinds of modules keep large float weights though nobody asked for that, and why, in a
    sentence; "" where there are none. `replaced` and `read` go by the ids of modules."""
    tied, whole = tied_weights(model), sum(weight.numel() for weight in model.parameters())
    kinds: dict[str, list[tuple[str, int]]] = {}
    for name, module in model.named_modules():
        if id(module) in replaced or skipped(name) or isinstance(module, _OTHERS):
            continue
        numbers = sum(_large(module, tied))
        if numbers and not holds_experts(module):  # a warning of their own tells of those
            reader = read.get(id(module))
            why = f", whose weight {reader} reads" if reader else ""
            kinds.setdefault(f"{type(module).__name__}{why}", []).append((name, numbers))
    told = [
        f"{len(found)} {kind} (such as {found[0][0] or 'the model'})"
        for kind, found in kinds.items()
        if sum(numbers for _, numbers in found) * _LARGE >= whole
    ]
    if not told:
        return ""
    more = ", ..." if len(told) > _NAMED else ""
    return f"{REPLACED}, so these stay floats: {', '.join(told[:_NAMED])}{more}"


def _large(module: nn.Module, tied: Set[int]) -> Iterator[int]:
    """Numbers of each matrix, or stack of them, that is the module's own."""
    for weight in module.parameters(recurse=False):
        wide = weight.ndim in (2, 3) and min(weight.shape[-2:]) >= _NARROW
        if wide and weight.is_floating_point() and id(weight) not in tied:
            yield weight.numel()
