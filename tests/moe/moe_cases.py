"""Experts, routings and float64 answers for tests of mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from humming.quantize import PackedExperts, QuantizedTensor, pack_experts
from humming.quantize.drawn import drawn
from humming.reference import error_bound, matmul_float64

SKEWS = ("uniform", "one", "few", "none-here", "others")


@dataclass(frozen=True, eq=False)
class Experts:
    """Weights of some experts and their biases."""

    weights: tuple[QuantizedTensor, ...]
    packed: PackedExperts
    bias: torch.Tensor


@lru_cache(maxsize=16)
def experts(format: str, count: int, n: int, k: int, act_order: bool = False) -> Experts:
    generator = torch.Generator().manual_seed(n * 10007 + k)
    weights = tuple(drawn(format, n, k, generator, act_order=act_order) for _ in range(count))
    bias = torch.randn(count, n, generator=generator)
    return Experts(weights, pack_experts(weights), bias)


def ids_of(skew: str, m: int, top_k: int, experts: int, seed: int = 0) -> torch.Tensor:
    """Expert ids [m, top_k] of so skewed a routing: all alike, one or few experts with all tokens,
    none of this rank, some of other ranks."""
    generator = torch.Generator().manual_seed(seed + m)
    scores = torch.rand(m, experts, generator=generator)
    if skew == "few":
        scores[:, : max(top_k, experts // 4)] += 2
    ids = scores.topk(min(top_k, experts), dim=1).indices
    if ids.shape[1] < top_k:
        ids = torch.cat([ids, ids[:, :1].expand(-1, top_k - ids.shape[1])], dim=1)
    if skew == "one":
        ids = torch.full_like(ids, experts - 1)
    if skew == "none-here":
        ids = torch.full_like(ids, -1)
    if skew == "others":
        far = torch.rand(m, top_k, generator=generator) < 0.4
        ids = torch.where(far, torch.where(ids % 2 == 0, -1 - ids, ids + experts), ids)
    return ids


def answer(
    x: torch.Tensor, of: Experts, chosen: torch.Tensor, bias: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """float64 out and bound [rows, n] of rows of x with the experts `chosen` (-1: none, zero)."""
    n = of.weights[0].shape[0]
    out = torch.zeros(len(x), n, dtype=torch.float64)
    bound = torch.zeros_like(out)
    for expert, weight in enumerate(of.weights):
        rows = (chosen == expert).nonzero().flatten()
        if len(rows):
            own = of.bias[expert] if bias else None
            out[rows] = matmul_float64(x[rows], weight, own)
            bound[rows] = error_bound(x[rows], weight, x.dtype, own)
    return out, bound
