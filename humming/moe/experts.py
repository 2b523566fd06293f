"""HummingExperts: both projections of all experts, what stands between them, and the weighted sum.
The router before it is module.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from humming.errors import LayoutError
from humming.moe.activations import ExpertActivation, runs_in_one_launch
from humming.moe.op import refuse_gradients
from humming.moe.router import check_top_k, combine
from humming.moe.rows import Rows
from humming.moe.stack import ExpertStack
from humming.quantize.quantizers import quantize
from humming.quantize.tensor import QuantizedTensor, check_tensor
from humming.state import ACTIVATION_DTYPES, ACTIVATIONS
from humming.warm import autocast_dtype


class HummingExperts(nn.Module):
    """`sum over j of weights[t, j] * down[ids[t, j]] @ act(up[ids[t, j]] @ x[t])`.

    `up` is [experts, 2 * i, h], gates then ups, where the activation is gated, else [experts, i,
    h]; `down` is [experts, h, i]. A rank that holds experts first_expert .. only adds those: ranks'
    results are summed up by the caller. A drop-in for the expert modules of transformers 5.
    """

    def __init__(
        self,
        up: ExpertStack,
        down: ExpertStack,
        activation: ExpertActivation | str | None = None,
        first_expert: int = 0,
        scales_input: bool = False,
    ) -> None:
        super().__init__()
        self.activation = _activation(activation)
        width = up.spec.n // 2 if self.activation.gated else up.spec.n
        if (up.spec.experts, width) != (down.spec.experts, down.spec.k):
            raise LayoutError(
                "both projections must have the same experts and width, but got up "
                f"[{up.spec.experts}, {up.spec.n}, {up.spec.k}] and down [{down.spec.experts}, "
                f"{down.spec.n}, {down.spec.k}] with activation {self.activation.name}"
            )
        self.up, self.down = up, down
        self.first_expert, self.scales_input = first_expert, scales_input

    @classmethod
    def from_float(
        cls,
        up: torch.Tensor,
        down: torch.Tensor,
        format: str = "int4g128",
        activation: ExpertActivation | str | None = None,
        up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        top_k: int | None = None,
        method: str = "absmax",
        **options: Any,
    ) -> HummingExperts:
        """Of float weights `up` [experts, n, h] and `down` [experts, h, i], quantized in turn.

        `top_k`, the experts of a token, is what tables are looked up by before the first call; only
        a rank that says its `first_expert` may have fewer experts. Raises LayoutError.
        """
        check_tensor(up, "up", "[experts, n, h]")
        check_tensor(down, "down", "[experts, h, i]")
        if up.ndim != 3 or down.ndim != 3 or len(up) != len(down):
            raise LayoutError(
                "experts' weights must be [experts, n, k], but got "
                f"{list(up.shape)} and {list(down.shape)}"
            )
        activation = _activation(activation)  # before the long work
        if top_k is not None:
            check_top_k(top_k)
            if top_k > len(up) and "first_expert" not in options:
                raise LayoutError(
                    f"`top_k <= {len(up)}` must hold of {len(up)} experts, but got top_k={top_k}; "
                    "give first_expert where other ranks have more of them"
                )

        def stack(weights: torch.Tensor, bias: torch.Tensor | None) -> ExpertStack:
            every: Iterable[QuantizedTensor] = (
                quantize(w.detach(), format, method) for w in weights
            )
            return ExpertStack.of(every, bias, weights.dtype, top_k, len(weights))

        return cls(stack(up, up_bias), stack(down, down_bias), activation, **options)

    def forward(
        self,
        hidden_states: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
    ) -> torch.Tensor:
        """[m, h] of hidden_states [m, h], ids [m, top_k] and weights [m, top_k], in the type of
        hidden_states. Under torch.autocast, as in the expert modules of transformers, autocast's
        type is that of both products. Raises LayoutError where they do not fit or need a
        gradient."""
        check_hidden(hidden_states, self.up.spec.k)
        to = autocast_dtype(hidden_states)
        if to is not None:
            needed = self.up.x_dtype
            x = hidden_states.to(ACTIVATION_DTYPES[needed] if needed else to)
            with torch.autocast(hidden_states.device.type, enabled=False):
                return self.forward(x, top_k_index, top_k_weights).to(hidden_states.dtype)
        if hidden_states.ndim != 2:
            raise LayoutError(f"hidden_states must be [m, h], but got {list(hidden_states.shape)}")
        _check_choice(hidden_states.shape[0], top_k_index, top_k_weights)
        if not torch.compiler.is_compiling():
            refuse_gradients(hidden_states, top_k_weights)
        weights: torch.Tensor | None = top_k_weights.to(torch.float32)
        x = hidden_states
        m, top_k = top_k_index.shape
        if self.scales_input:
            x = (x[:, None].to(torch.float32) * top_k_weights[:, :, None]).to(x.dtype)
            x, weights = x.flatten(0, 1), None
        rows = Rows.indexed(top_k_index, self.first_expert, shared=not self.scales_input)
        alone = runs_in_one_launch(x) and rows.count > 0
        if alone:
            from humming.jit.cuda.experts_around import sort_rows  # CUDA alone

            sort_rows(rows, self.up.spec.experts, (self.up.block_m(rows), self.down.block_m(rows)))
        projected, own, out = self.up(x, rows), rows.with_own_x(), None
        if alone and self.activation.name == "silu":
            out = self.down.after_silu(projected, own)
        if out is None:
            out = self.down(self.activation(projected), own)
        return combine(out.view(m, top_k, self.down.spec.n), weights)

    def prepare(
        self, table: Any = None, m: int | None = None, dtype: torch.dtype | None = None
    ) -> HummingExperts:
        """Binds both projections to `table` and compiles their kernels."""
        self.up.prepare(table, m, dtype)
        plan = self.down.prepare(table, m, dtype)
        if self.activation.name == "silu":
            plan.load_silu()
        return self

    def take_routing(self, routing: str) -> None:
        """Is served by what was tuned for this routing, or the nearest, from now on."""
        self.up.take_routing(routing)
        self.down.take_routing(routing)

    def extra_repr(self) -> str:
        """What is not in the projections."""
        return f"activation={self.activation.name}, first_expert={self.first_expert}"


def _activation(given: ExpertActivation | str | None) -> ExpertActivation:
    """By its name too. Raises LayoutError for what is none."""
    if given is None:
        return ExpertActivation()
    return given if isinstance(given, ExpertActivation) else ExpertActivation.named(given)


def check_hidden(x: torch.Tensor, h: int) -> None:
    """Raises LayoutError where `x` is not floats [.., h]."""
    check_tensor(x, "hidden_states", "[.., h]")
    if x.dtype not in ACTIVATIONS:
        raise LayoutError(
            "hidden_states must be fp32, bf16 or fp16, but got "
            f"{str(x.dtype).removeprefix('torch.')}; convert them with .to()"
        )
    if x.ndim < 1 or x.shape[-1] != h:
        raise LayoutError(f"hidden_states must be [.., {h}], but got {list(x.shape)}")


def _check_choice(m: int, ids: torch.Tensor, weights: torch.Tensor) -> None:
    """Raises LayoutError where ids and weights are not both [m, top_k]."""
    for name, choice in (("ids", ids), ("weights", weights)):
        check_tensor(choice, name, "[m, top_k]")
    if ids.ndim != 2 or ids.shape[0] != m or ids.shape != weights.shape:
        raise LayoutError(
            f"ids and weights must both be [{m}, top_k] for {m} rows of x, but got "
            f"{list(ids.shape)} and {list(weights.shape)}"
        )
