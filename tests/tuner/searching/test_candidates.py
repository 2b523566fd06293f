"""Candidates of a problem: what spaces offer, and what is not offered."""

from __future__ import annotations

from humming.dispatch.heuristics import heuristic
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.searching.candidates import legal_candidates

GPU = Device(
    "cuda",
    "a GPU",
    "sm80",
    40 << 20,
    compute_capability=(8, 0),
    sm_count=108,
    smem_bytes_per_block=166912,
    smem_bytes_per_sm=167936,
)
PROBLEM = Problem("int4g128", 4096, 4096, 64, layout=CUDA_LAYOUT)


def test_a_family_without_a_space_has_no_candidates():
    spaces = load_spaces()
    whole = legal_candidates(PROBLEM, GPU, spaces)
    first = heuristic(PROBLEM, GPU).family
    other = next(family for family in whole.by_family if family != first)
    rest = tuple(space for space in spaces if space.family != other)
    found = legal_candidates(PROBLEM, GPU, rest)
    assert other not in found.by_family
    assert found.by_family[first] == whole.by_family[first]
