"""How many tiles the rows of experts fill, as may be expected of a routing. Which tile serves is
heuristics_grouped.py."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

from humming.spec.problem import Problem
from humming.spec.routing import picked_of

_DECODING = 65.0
"""What a tile takes beside its products, in rows of these. On an H200, of five layers of experts
with 1024 and 4096 tokens, the tile that this puts first is the best of all that were measured, or
up to 3 % slower (benchmarks/results/h200_experts_evidence.json)."""


def tiles_of(problem: Problem, block_m: int) -> float:
    """Tiles of `block_m` rows that all experts together fill: each its rows, and the rest of its
    last tile."""
    experts, top_k = problem.experts or 1, problem.top_k or 1
    return _tiles(problem.m, top_k, experts, problem.routing or "", block_m)


def cheapest(problem: Problem, sizes: tuple[int, ...]) -> list[int]:
    """`sizes` of tiles that decode weights and multiply, the cheapest for all rows first."""
    return sorted(sizes, key=lambda size: tiles_of(problem, size) * (size + _DECODING))


@lru_cache(maxsize=1024)
def _tiles(m: int, top_k: int, experts: int, routing: str, block_m: int) -> float:
    found = 0.0
    for picked, count in Counter(picked_of(routing, experts, top_k)).items():
        mean, spread = m * picked, math.sqrt(m * picked * (1.0 - picked))
        if spread >= block_m:  # the last tile is as likely full as empty
            found += count * (mean / block_m + 0.5)
            continue
        full = max(0, int((mean - 4.0 * spread) // block_m))  # tiles that are surely there
        most = int((mean + 4.0 * spread) // block_m) + 1
        expected = float(full)
        for tile in range(full, most):
            expected += _more_than(tile * block_m, m, picked, mean, spread)
        found += count * expected
    return found


def _more_than(rows: int, m: int, picked: float, mean: float, spread: float) -> float:
    """The chance that of m tokens more than `rows` pick an expert."""
    if rows == 0:
        return float(1.0 - (1.0 - picked) ** m)
    if spread == 0.0:
        return float(mean > rows)
    return 0.5 * math.erfc((rows + 0.5 - mean) / (spread * math.sqrt(2.0)))
