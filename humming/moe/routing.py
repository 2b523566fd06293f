"""Random expert ids of a named routing, for measuring and examples. The names are those of
spec/routing.py."""

from __future__ import annotations

import torch

from humming.spec.routing import loads_of


def draw_ids(
    routing: str, m: int, experts: int, top_k: int, generator: torch.Generator
) -> torch.Tensor:
    """int32 [m, top_k] on the generator's device: each token draws different experts, without
    balance, one after another by their loads; which expert is the busiest is drawn too."""
    device = generator.device
    loads = torch.tensor(loads_of(routing, experts), device=device, dtype=torch.float32)
    uniform = torch.rand(m, experts, generator=generator, device=device).clamp_min(1e-20)
    keys = loads.clamp_min(1e-12).log() - (-uniform.log()).log()  # the largest are such a draw
    ranks = keys.topk(min(top_k, experts), dim=1).indices
    names = torch.randperm(experts, generator=generator, device=device)
    return names[ranks].to(torch.int32)
