"""What stands between an expert's two projections, by name, as torch computes it; on a GPU a kernel
of our own does the same in one launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from humming.errors import LayoutError
from humming.spec.naming import did_you_mean

GATED = ("silu", "gelu", "gelu_tanh", "swiglu_clamped", "silu_clamped")
PLAIN = ("relu2", "silu_plain", "gelu_plain")
SPELLINGS = {
    "swish": "silu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu_squared": "relu2",
}
"""Names of transformers -> ours, where they differ."""


@dataclass(frozen=True)
class ExpertActivation:
    """`name` of GATED takes [rows, 2 * i], gates then ups, and gives `act(gate) * up` [rows, i];
    one of PLAIN takes and gives [rows, i].

    "swiglu_clamped" is gpt-oss's: gate = min(gate, limit), up in -limit .. limit, and `(up + 1) *
    gate * sigmoid(alpha * gate)`; "silu_clamped", as DeepSeek V4 has it, is `silu(gate) * up` of
    such. Raises LayoutError for another name.
    """

    name: str = "silu"
    alpha: float = 1.702
    limit: float = 7.0

    def __post_init__(self) -> None:
        if self.name not in (*GATED, *PLAIN):
            near = did_you_mean(self.name, (*GATED, *PLAIN)) if isinstance(self.name, str) else ""
            raise LayoutError(
                f"an expert's activation must be one of {', '.join((*GATED, *PLAIN))}, but got "
                f"{self.name!r}{near}"
            )

    @property
    def gated(self) -> bool:
        """Whether half of what it takes are gates."""
        return self.name in GATED

    def __call__(self, projected: torch.Tensor) -> torch.Tensor:
        """[rows, 2 * i] or [rows, i] -> [rows, i] of the same type, computed in fp32."""
        if runs_in_one_launch(projected):
            from humming.jit.cuda.experts_around import activate  # CUDA alone

            return activate(projected, self.name, self.gated, self.alpha, self.limit)
        return self.of_torch(projected)

    def of_torch(self, projected: torch.Tensor) -> torch.Tensor:
        """The same by torch's functions, on any device."""
        wide = projected.to(torch.float32)
        if not self.gated:
            return _FUNCTIONS[self.name](wide).to(projected.dtype)
        gate, up = wide.chunk(2, dim=-1)
        if self.name.endswith("_clamped"):
            gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        if self.name == "swiglu_clamped":
            return (gate * torch.sigmoid(gate * self.alpha) * (up + 1)).to(projected.dtype)
        return (_FUNCTIONS[self.name](gate) * up).to(projected.dtype)

    @staticmethod
    def named(name: str, gated: bool = True) -> ExpertActivation:
        """By a name that transformers uses, or ours."""
        own = SPELLINGS.get(name, name) if isinstance(name, str) else name
        if not gated and own in ("silu", "gelu"):
            own += "_plain"
        return ExpertActivation(own)


def runs_in_one_launch(x: torch.Tensor) -> bool:
    """Whether kernels of our own take `x`: on a GPU, of 16 bits, while nothing traces the call."""
    return (
        x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.is_contiguous()
        and type(x) is torch.Tensor
        and not torch.compiler.is_compiling()
    )


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return functional.gelu(x, approximate="tanh")


def _relu2(x: torch.Tensor) -> torch.Tensor:
    return functional.relu(x).square()


_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "silu_clamped": functional.silu,
    "silu_plain": functional.silu,
    "gelu": functional.gelu,
    "gelu_plain": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu2": _relu2,
}
