"""How many tiles experts' rows fill, against tokens that were drawn."""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from humming.dispatch.expert_tiles import cheapest, tiles_of
from humming.moe.routing import draw_ids
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem
from humming.spec.routing import picked_of


def problem(m: int, experts: int, top_k: int, routing: str) -> Problem:
    about = {"op": "moe", "experts": experts, "top_k": top_k, "routing": routing}
    return Problem("int4g128", 512, 512, m, "bf16", "bf16", CUDA_LAYOUT, **about)


@pytest.mark.parametrize("routing", ["uniform", "zipf1.2"])
@pytest.mark.parametrize("block_m", [8, 24, 128])
@pytest.mark.parametrize(("experts", "top_k"), [(1, 1), (8, 2), (128, 8), (256, 8)])
@pytest.mark.parametrize("m", [0, 1, 16, 300, 2000])
def test_they_are_as_many_as_drawn_tokens_fill(m, experts, top_k, block_m, routing):
    draw = torch.Generator().manual_seed(m + experts)
    drawn = []
    for _ in range(8):
        rows = Counter(draw_ids(routing, m, experts, top_k, draw).flatten().tolist())
        drawn.append(sum(-(-count // block_m) for count in rows.values()))
    expected = tiles_of(problem(m, experts, top_k, routing), block_m)
    assert expected == pytest.approx(statistics.fmean(drawn), rel=0.1, abs=1.5)


def test_a_tile_that_holds_most_experts_rows_is_cheaper_than_two_or_a_large_one():
    sizes = (32, 48, 64, 80, 96, 112, 128)
    assert cheapest(problem(1024, 128, 8, "uniform"), sizes)[0] == 80  # 64 rows in the mean
    assert cheapest(problem(256, 128, 8, "uniform"), sizes)[0] == 32  # 16
    assert cheapest(problem(4096, 128, 4, "uniform"), sizes)[0] == 128  # 128


@given(
    st.sampled_from(["uniform", "zipf0.5", "zipf1.2", "zipf3"]),
    st.integers(1, 200),
    st.integers(1, 16),
)
def test_chances_of_experts_fall_with_their_loads_and_add_up(routing, experts, top_k):
    chances = picked_of(routing, experts, top_k)
    assert len(chances) == experts
    assert sum(chances) == pytest.approx(min(top_k, experts), rel=1e-6)
    assert all(0.0 <= late <= early <= 1.0 for early, late in pairwise(chances))
