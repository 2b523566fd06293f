"""The expert modules of transformers 5 as HummingExperts: modules that hold `gate_up_proj` (or
`up_proj`) and `down_proj` as stacked floats and are called with (x, ids, weights).

Blocks that call their experts otherwise (Llama 4) are read from checkpoints; see checkpoints.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from humming.moe.activations import ExpertActivation
from humming.moe.experts import HummingExperts

_ARGUMENTS = 3  # hidden_states, ids, weights


def is_experts(module: nn.Module) -> bool:
    """Whether `module` is one that `experts_of` takes."""
    up, down = _up(module), getattr(module, "down_proj", None)
    stacked = all(isinstance(t, torch.Tensor) and t.dim() == 3 for t in (up, down))
    return stacked and _arguments(module) == _ARGUMENTS and _activation(module) is not None


def experts_of(
    module: nn.Module, format: str = "int4g128", method: str = "absmax", top_k: int = 1
) -> HummingExperts:
    """`module`, which is left as it is, with its weights quantized to `format`."""
    up, down = _up(module), _tensor(module.down_proj)
    up_bias = getattr(module, "gate_up_proj_bias", getattr(module, "up_proj_bias", None))
    if getattr(module, "is_transposed", False):
        up, down = up.transpose(1, 2), down.transpose(1, 2)
    activation = _activation(module)
    if activation is not None and activation.gated and not getattr(module, "is_concatenated", True):
        up = torch.cat([up[:, 0::2], up[:, 1::2]], dim=1)
        if up_bias is not None:
            up_bias = torch.cat([up_bias[:, 0::2], up_bias[:, 1::2]], dim=1)
    down_bias: Any = getattr(module, "down_proj_bias", None)
    return HummingExperts.from_float(
        up, down, format, activation, up_bias, down_bias, top_k, method
    ).train(module.training)


def convert_experts(
    model: nn.Module, format: str, method: str, skipped: Callable[[str], bool]
) -> None:
    """Replaces every module of `model` that `is_experts`, but for those whose name is `skipped`."""
    for prefix, owner in list(model.named_modules()):
        for attribute, child in list(owner.named_children()):
            name = f"{prefix}.{attribute}" if prefix else attribute
            if is_experts(child) and not skipped(name):
                setattr(owner, attribute, experts_of(child, format, method, _top_k(owner)))


def _top_k(owner: nn.Module) -> int:
    """How many experts a token has, as the block around them says; 1 where it does not."""
    for module in (owner, *owner.children()):
        found = getattr(module, "top_k", None)
        if isinstance(found, int):
            return found
    return 1


def _up(module: nn.Module) -> Any:
    return getattr(module, "gate_up_proj", getattr(module, "up_proj", None))


def _tensor(found: Any) -> torch.Tensor:
    assert isinstance(found, torch.Tensor)
    return found


def _arguments(module: nn.Module) -> int:
    forward: Any = inspect.unwrap(type(module).forward)
    return int(forward.__code__.co_argcount) - 1


def _activation(module: nn.Module) -> ExpertActivation | None:
    """What stands between the projections; None where that is not known."""
    alpha, limit = getattr(module, "alpha", None), getattr(module, "limit", None)
    if alpha is not None and limit is not None:
        return ExpertActivation("swiglu_clamped", float(alpha), float(limit))
    if limit is not None or not hasattr(module, "act_fn"):
        return None
    gated = hasattr(module, "gate_up_proj")
    function: Any = module.act_fn
    names = {
        "SiLUActivation": "silu",
        "SiLU": "silu",
        "GELUActivation": "gelu",
        "GELUTanh": "gelu_tanh",
        "NewGELUActivation": "gelu_tanh",
        "ReLUSquaredActivation": "relu2",
    }
    name = names.get(type(function).__name__) or names.get(getattr(function, "__name__", ""), "")
    own = ExpertActivation.named(name, gated) if name else None
    return own if own is not None and own.gated == gated else None
