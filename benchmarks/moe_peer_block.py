"""A whole block of experts of the peer humming-kernels: its grouped products, and torch's functions
around them. Part of the process moe_peer_server.py; nothing of ours may be imported here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional


class PeerBlock:
    """Router, both projections and the weighted sum. `layer` makes one layer of the peer."""

    def __init__(self, sizes: dict[str, int], layer: Callable[..., Any], seed: int) -> None:
        self._experts, self._top_k = sizes["experts"], sizes["top_k"]
        hidden, width = sizes["hidden"], sizes["width"]
        self._up = layer(n=2 * width, k=hidden, down=False)
        self._down = layer(n=hidden, k=width, down=True)
        draw = torch.Generator("cuda").manual_seed(seed)
        router = torch.randn(self._experts, hidden, device="cuda", generator=draw)
        self._router = (router / hidden**0.5).to(torch.bfloat16)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[m, hidden] of x [m, hidden]."""
        scores = functional.linear(x, self._router).softmax(-1, dtype=torch.float32)
        weights, ids = scores.topk(self._top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        blocks = self._up.block_of(len(x)), self._down.block_of(len(x))
        rows = aligned(ids, self._experts, blocks[0])
        gate, value = self._up.multiply(x, None, *rows).chunk(2, dim=-1)
        middle = functional.silu(gate) * value
        if blocks[0] != blocks[1]:
            rows = aligned(ids, self._experts, blocks[1])
        out: torch.Tensor = self._down.multiply(middle, None, *rows).view(*ids.shape, -1)
        return (out * weights.to(out.dtype)[..., None]).sum(1)


def aligned(
    ids: torch.Tensor, experts: int, block: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of ids [m, top_k]: rows sorted by experts, each expert's padded to whole blocks by a number
    that is no row's; the expert of each block; how many are no tail. The host reads nothing."""
    flat, order = ids.flatten().sort(stable=True)
    count, device = len(flat), ids.device
    counts = torch.zeros(experts, dtype=torch.int64, device=device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    padded = (counts + block - 1) // block * block
    ends = padded.cumsum(0)
    most = min(count * block, -(-(count + experts * (block - 1)) // block) * block)
    moved = (ends - padded - counts.cumsum(0) + counts)[flat]
    moved = moved + torch.arange(count, device=device)
    sorted_ids = torch.full((most,), count, dtype=torch.int32, device=device)
    sorted_ids[moved] = order.to(torch.int32)
    starts = torch.arange(0, most, block, device=device)
    of_blocks = torch.searchsorted(ends, starts, right=True).clamp(max=experts - 1)
    return sorted_ids, of_blocks.to(torch.int32), ends[-1].to(torch.int32)


class Blocks:
    """Blocks with weights of their own."""

    def __init__(self, sizes: dict[str, int], weight: dict[str, Any]) -> None:
        peer = importlib.import_module("moe_peer_server").Peer

        def layer(**own: Any) -> Any:
            return peer({"experts": sizes["experts"], "top_k": sizes["top_k"], **own}, weight, None)

        self._hidden = sizes["hidden"]
        self._blocks = [PeerBlock(sizes, layer, seed) for seed in range(sizes["copies"])]

    def calls(self, m: int, draws: int) -> list[Callable[[], torch.Tensor]]:
        """A call for each of `draws` inputs and each block."""
        shape = (m, self._hidden)
        inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(draws)]
        return [lambda x=x, b=b: b(x) for x in inputs for b in self._blocks]  # type: ignore[misc]

    def warm(self, m: int) -> None:
        """One call, which compiles what it needs."""
        self.calls(m, 1)[0]()
        torch.cuda.synchronize()
