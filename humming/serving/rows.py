"""From x of any leading dimensions and strides to the rows that a plan takes, and back."""

from __future__ import annotations

import torch

from humming.plan import Plan
from humming.quantize.layout import PackedWeight


def run(
    x: torch.Tensor, plan: Plan, weight: PackedWeight, bias: torch.Tensor | None
) -> torch.Tensor:
    """Runs `plan` on x of any leading dimensions and strides; `bias` is fp32 and contiguous."""
    k = weight.k
    rows = x if x.ndim == 2 else x.reshape(-1, k)
    row, step = rows.stride()
    if step != 1 or row < k:
        # Not .contiguous(): it leaves a single row its odd stride.
        rows = rows.clone(memory_format=torch.contiguous_format)
    out = plan.run(rows, weight, bias)
    return out if x.ndim == 2 else out.view(*x.shape[:-1], weight.n)
