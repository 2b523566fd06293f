"""How rows fall on experts, and whether those that came out are right, in tests of grouped kernels
that run block by block on the host."""

from __future__ import annotations

import torch

from humming.quantize import QuantizedTensor

EXPERTS = 4


def tiles_of(chosen: torch.Tensor, block_m: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tiles and places of their rows, as the kernels around grouped products list them; one more
    that has no rows."""
    order, tiles, places = chosen.sort(stable=True).indices, [], []
    for expert in range(EXPERTS + 1):
        first, count = int((chosen < expert).sum()), int((chosen == expert).sum())
        for done in range(0, count, block_m):
            rows = order[first + done : first + min(done + block_m, count)].tolist()
            tiles.append([-1 if expert == EXPERTS else expert, first + done, len(rows)])
            places.append(rows + [0] * (block_m - len(rows)))
    listed = [[*tile, len(tiles)] for tile in [*tiles, [-1, 0, 0]]]
    made = torch.tensor([*places, [0] * block_m], dtype=torch.int32)
    return torch.tensor(listed, dtype=torch.int32), made


def check_rows(
    out: torch.Tensor,
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: list[QuantizedTensor],
    bias: torch.Tensor,
) -> None:
    """Whether `out` has the product of each row of x (float64) with its expert, zero for rows of
    none here, and nothing beside the columns that were asked for."""
    n = bias.shape[1]
    wanted = torch.zeros(len(x), n, dtype=torch.float64)
    for expert, weight in enumerate(weights):
        mine = chosen == expert
        wanted[mine] = x[mine] @ weight.dequantize().double().T + bias[expert].double()
    error, size = (out[:, :n].double() - wanted).norm(dim=1), wanted.norm(dim=1)
    assert bool((error <= 6e-3 * size + 1e-6).all())
    assert out[:, n:].isnan().all()
