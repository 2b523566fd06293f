"""HummingMoE: a whole block of a mixture of experts, router to weighted sum. How checkpoints store
one is checkpoints.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from humming.errors import LayoutError
from humming.linear import HummingLinear
from humming.modes import batch_invariant
from humming.moe.experts import HummingExperts, check_hidden
from humming.moe.router import RouterRule, check_correction, route, row_logits
from humming.quantize.tensor import check_tensor


class HummingMoE(nn.Module):
    """`experts(x, *route(x @ router.T + router_bias)) + shared(x)`.

    router      float [experts, h], kept as it is: nobody quantizes it; of all ranks' experts
    correction  fp32 [experts], added to scores for choosing alone; or None
    shared      a module [.., h] -> [.., h] that every token goes through, or None; its output is
                multiplied by sigmoid(x @ shared_gate.T) where `shared_gate` [1, h] is given
    """

    correction: torch.Tensor | None
    router_bias: torch.Tensor | None
    shared_gate: torch.Tensor | None

    def __init__(
        self,
        router: torch.Tensor,
        experts: HummingExperts,
        rule: RouterRule,
        correction: torch.Tensor | None = None,
        router_bias: torch.Tensor | None = None,
        shared: nn.Module | None = None,
        shared_gate: torch.Tensor | None = None,
    ) -> None:
        super().__init__()
        _check_types(
            router=router,
            experts=experts,
            rule=rule,
            correction=correction,
            router_bias=router_bias,
            shared=shared,
            shared_gate=shared_gate,
        )
        _check_router(router, experts)
        count = len(router)
        rule.check(count)
        check_correction(correction, count)
        told = experts.up.told_top_k
        if told not in (None, rule.top_k):
            raise LayoutError(
                f"rule and experts must agree about top_k, but got {rule.top_k} and {told}; give "
                "both the same, or the experts none"
            )
        if router_bias is not None and tuple(router_bias.shape) != (count,):
            raise LayoutError(f"router_bias must be [{count}], but got {list(router_bias.shape)}")
        gate = (1, router.shape[1])
        if shared_gate is not None and tuple(shared_gate.shape) != gate:
            raise LayoutError(
                f"shared_gate must be {list(gate)}, but got {list(shared_gate.shape)}"
            )
        if rule.scales_input != experts.scales_input:
            raise LayoutError(
                "rule and experts must agree about scales_input, but got "
                f"{rule.scales_input} and {experts.scales_input}"
            )
        self.register_buffer("router", router.detach())
        self.register_buffer("router_bias", None if router_bias is None else router_bias.detach())
        self.register_buffer("correction", None if correction is None else correction.detach())
        self.register_buffer("shared_gate", None if shared_gate is None else shared_gate.detach())
        self.experts, self.rule, self.shared = experts, rule, shared

    @classmethod
    def from_checkpoint(cls, path: str | Path, block: str, **options: Any) -> HummingMoE:
        """The block called `block` ("model.layers.3.mlp") of the checkpoint in the folder `path`;
        see moe/checkpoints.py for what loads, and for `options`: device, dtype, format, tp, ep."""
        from humming.moe.checkpoints import read_block  # it builds on this module

        return read_block(path, block, **options)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """[.., h] of hidden_states [.., h]. Raises LayoutError where they do not fit or need a
        gradient."""
        check_hidden(hidden_states, self.experts.up.spec.k)
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        ids, weights = self.choose(x)
        out: torch.Tensor = self.experts(x, ids, weights)
        if self.shared is not None:
            extra = self.shared(x)
            if self.shared_gate is not None:
                extra = torch.sigmoid(functional.linear(x, self.shared_gate.to(x.dtype))) * extra
            out = out + extra
        return out.view(hidden_states.shape)

    def choose(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """ids int32 [m, top_k] and weights fp32 [m, top_k] of x [m, h]."""
        router: Any = self.router
        kind = torch.float32 if self.correction is not None else x.dtype
        bias = None if self.router_bias is None else self.router_bias.to(kind)
        if batch_invariant():
            logits = row_logits(x, router, bias).to(kind)
        else:
            logits = functional.linear(x.to(kind), router.to(kind), bias)
        return route(logits, self.rule, self.correction)

    def prepare(
        self, table: Any = None, m: int | None = None, dtype: torch.dtype | None = None
    ) -> HummingMoE:
        """Binds to `table` and compiles the kernels, of all m or the interval that holds `m`."""
        self.experts.prepare(table, m, dtype)
        for part in self.shared.modules() if self.shared is not None else ():
            if isinstance(part, HummingLinear):
                part.prepare(table, m, dtype)
        return self

    def extra_repr(self) -> str:
        """How tokens are routed."""
        rule = self.rule
        return f"top_k={rule.top_k}, scoring={rule.scoring}, groups={rule.groups}"


def _check_types(**parts: object) -> None:
    """Each part by its name; those that a block must have may not be None."""
    kinds: dict[str, type] = {"experts": HummingExperts, "rule": RouterRule, "shared": nn.Module}
    for name, part in parts.items():
        if part is None and name not in ("router", "experts", "rule"):
            continue
        if name not in kinds:
            check_tensor(part, name, "of floats")
        elif not isinstance(part, kinds[name]):
            raise LayoutError(
                f"{name} must be of the type {kinds[name].__name__}, but got {type(part).__name__}"
            )


def _check_router(router: torch.Tensor, experts: HummingExperts) -> None:
    """A rank that holds experts first .. of all has one of several equal shares of them."""
    own, first, k = experts.up.spec.experts, experts.first_expert, experts.up.spec.k
    if router.ndim != 2 or router.shape[1] != k:
        raise LayoutError(f"router must be [experts, {k}], but got {list(router.shape)}")
    if len(router) % own or first + own > len(router):
        raise LayoutError(
            f"router must have a row for each expert, those of other ranks as well, but got "
            f"{len(router)} rows for {own} experts from number {first} on"
        )


class SharedExpert(nn.Module):
    """`down @ act(up @ x)` for every token; both are HummingLinear or nn.Linear."""

    def __init__(self, up: nn.Module, down: nn.Module, activation: Any) -> None:
        super().__init__()
        self.up, self.down, self.activation = up, down, activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[m, h] of x [m, h]."""
        out: torch.Tensor = self.down(self.activation(self.up(x)))
        return out
