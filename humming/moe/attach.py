"""The expert modules of transformers 5 as HummingExperts: modules that hold `gate_up_proj` (or
`up_proj`) and `down_proj` as stacked floats and are called with (x, ids, weights).

Blocks that call their experts otherwise (Llama 4) are read from checkpoints; see checkpoints.py.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from humming.errors import LayoutError
from humming.moe.activations import GATED, PLAIN, ExpertActivation
from humming.moe.experts import HummingExperts
from humming.quantize.quantizers import check_weight
from humming.state import ACTIVATIONS, layout_on, scales_follow

_ARGUMENTS = 3  # hidden_states, ids, weights
_LIMITS, _ALPHAS = ("limit", "swiglu_limit"), ("alpha", "swiglu_alpha")
_WIDTH = 64  # of the numbers by which an activation is known
_NAMED = 4  # names that a warning lists at the most


def is_experts(module: nn.Module) -> bool:
    """Whether `module` is one that `experts_of` takes."""
    return holds_experts(module) and known_activation(module) is not None


def holds_experts(module: nn.Module) -> bool:
    """Whether `module` is one of all experts of a block, whatever it computes."""
    up, down = _up(module), getattr(module, "down_proj", None)
    stacked = all(isinstance(t, torch.Tensor) and t.dim() == 3 for t in (up, down))
    return stacked and _arguments(module) == _ARGUMENTS


def stacked_sizes(module: nn.Module) -> tuple[int, int] | None:
    """How many weights the first and the second projection of all experts have; None where
    `module` does not hold them so."""
    if not holds_experts(module):
        return None
    return _tensor(_up(module)).numel(), _tensor(module.down_proj).numel()


def experts_of(
    module: nn.Module, format: str = "int4g128", method: str = "absmax", top_k: int | None = None
) -> HummingExperts:
    """`module`, which is left as it is, with its weights quantized to `format`. Raises LayoutError
    where nothing here computes what it does."""
    up, down = _up(module), _tensor(module.down_proj)
    up_bias = getattr(module, "gate_up_proj_bias", getattr(module, "up_proj_bias", None))
    if getattr(module, "is_transposed", False):
        up, down = up.transpose(1, 2), down.transpose(1, 2)
    known = known_activation(module)
    if known is None:
        raise LayoutError(
            f"{type(module).__name__} must activate by one of {', '.join((*GATED, *PLAIN))}; build "
            "a HummingExperts of its weights where one of them is near enough"
        )
    activation, in_turn = known
    if in_turn:
        up = torch.cat([up[:, 0::2], up[:, 1::2]], dim=1)
        if up_bias is not None:
            up_bias = torch.cat([up_bias[:, 0::2], up_bias[:, 1::2]], dim=1)
    down_bias: Any = getattr(module, "down_proj_bias", None)
    return HummingExperts.from_float(
        up, down, format, activation, up_bias, down_bias, top_k, method
    ).train(module.training)


def found_experts(
    model: nn.Module, format: str, skipped: Callable[[str], bool]
) -> list[tuple[nn.Module, str]]:
    """(owner, attribute) of every module of `model` that `is_experts`, but for those whose name is
    `skipped`. A warning names experts that are left out, as nothing here computes what they do.
    Raises LayoutError, by its name, for one whose weights do not fit or are not finite."""
    found: list[tuple[nn.Module, str]] = []
    unlike: list[str] = []
    for prefix, owner in list(model.named_modules()):
        for attribute, child in list(owner.named_children()):
            name = f"{prefix}.{attribute}" if prefix else attribute
            if skipped(name) or not holds_experts(child):
                continue
            if known_activation(child) is None:
                unlike.append(f"{name} ({type(child).__name__})")
            else:
                _check(name, child, format)
                found.append((owner, attribute))
    if unlike:
        more = " ..." if len(unlike) > _NAMED else ""
        warnings.warn(
            "experts must multiply, activate and multiply, by an activation of "
            f"{', '.join((*GATED, *PLAIN))}, so these stay as they are: "
            f"{', '.join(unlike[:_NAMED])}{more}",
            RuntimeWarning,
            stacklevel=3,
        )
    return found


def convert_experts(owner: nn.Module, attribute: str, format: str, method: str) -> None:
    """Replaces what `found_experts` found at `owner.attribute`."""
    child = getattr(owner, attribute)
    setattr(owner, attribute, experts_of(child, format, method, _top_k(owner)))


def known_activation(module: nn.Module) -> tuple[ExpertActivation, bool] | None:
    """What stands between the projections, known by what it computes, and whether rows of the first
    are gate and up in turn; None where that is nothing of ours, or more follows the second."""
    theirs, gated = _between(module), hasattr(module, "gate_up_proj")
    if theirs is None or getattr(module, "has_post_expert_norm", False):
        return None
    numbers = torch.linspace(-9.0, 9.0, 8 * _WIDTH).view(8, _WIDTH)
    parts = (numbers, numbers.flip(0, 1).roll(5, 1)) if gated else (numbers,)
    joined = torch.cat(parts, dim=1)
    orders = (
        {False: joined, True: torch.stack(parts, dim=2).flatten(1)} if gated else {False: joined}
    )
    for in_turn, given in orders.items():
        with suppress(RuntimeError, TypeError, ValueError, AttributeError), torch.inference_mode():
            found = theirs(given)
            for own in _candidates(module, gated):
                wanted = own.of_torch(joined)
                if found.shape == wanted.shape and torch.allclose(found, wanted, 1e-4, 1e-5):
                    return own, in_turn
    return None


def _between(module: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """What the module does between its projections; None where it does not say."""
    function: Any = getattr(module, "act_fn", None)
    if not hasattr(module, "gate_up_proj"):
        return function if callable(function) else None
    whole: Any = getattr(module, "_apply_gate", None)
    if callable(whole):
        return whole  # type: ignore[no-any-return]
    limited = any(getattr(module, name, None) is not None for name in _LIMITS)
    if limited or not callable(function):
        return None

    def gated(projected: torch.Tensor) -> torch.Tensor:
        gate, up = projected.chunk(2, dim=-1)
        out: torch.Tensor = function(gate) * up
        return out

    return gated


def _candidates(module: nn.Module, gated: bool) -> Iterator[ExpertActivation]:
    """Ours that it may be, with the numbers that the module has."""
    limits = [float(n) for name in _LIMITS if (n := getattr(module, name, None)) is not None]
    alphas = [float(n) for name in _ALPHAS if (n := getattr(module, name, None)) is not None]
    for name in GATED if gated else PLAIN:
        if not name.endswith("_clamped"):
            yield ExpertActivation(name)
            continue
        for limit in limits:
            for alpha in alphas or [ExpertActivation.alpha]:
                yield ExpertActivation(name, alpha, limit)


def _check(name: str, module: nn.Module, format: str) -> None:
    up = "gate_up_proj" if hasattr(module, "gate_up_proj") else "up_proj"
    for stack in (up, "down_proj"):
        weights = _tensor(getattr(module, stack))
        for number, weight in enumerate(weights):
            try:
                check_weight(weight)
                if weight.dtype not in ACTIVATIONS:
                    raise LayoutError(f"experts must be fp32, bf16 or fp16, but are {weight.dtype}")
                scales_follow(layout_on(weight.device, format, "moe"), weight.dtype)
            except LayoutError as error:
                raise LayoutError(f"{name}.{stack}[{number}]: {error}") from None


def _top_k(owner: nn.Module) -> int | None:
    """How many experts a token has, as the block around them says; None where it does not."""
    for module in (owner, *owner.children()):
        found = getattr(module, "top_k", None)
        if isinstance(found, int):
            return found
    return None


def _up(module: nn.Module) -> Any:
    return getattr(module, "gate_up_proj", getattr(module, "up_proj", None))


def _tensor(found: Any) -> torch.Tensor:
    assert isinstance(found, torch.Tensor)
    return found


def _arguments(module: nn.Module) -> int:
    forward: Any = inspect.unwrap(type(module).forward)
    return int(forward.__code__.co_argcount) - 1
