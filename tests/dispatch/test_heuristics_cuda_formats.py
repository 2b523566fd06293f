"""The heuristic of GPUs for other formats than int4g128: legal for every format, shape, order."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from humming.dispatch.heuristics import heuristic, heuristic_intervals
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations, families_for
from humming.spec.problem import M_END, Problem
from tests.gpus import gpu

FORMATS = ("int1g128", "int3g64", "int8", "uint4g128z", "uint5g16z", "uint4g64zf", "uint4g32zf")
FORMATS += ("mxfp4", "nvfp4", "fp8e4m3", "fp8e4m3b128", "fp6e3m2g32", "fp8e6m1g128", "int4g24")
GPUS = st.builds(
    gpu,
    st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]),
    st.integers(1, 200),
)
PROBLEMS = st.builds(
    Problem,
    format=st.sampled_from(FORMATS),
    n=st.integers(1, 300) | st.integers(1, 2**18),
    k=st.integers(1, 600) | st.integers(1, 2**15),
    m=st.integers(0, 80) | st.integers(0, M_END - 1),
    activation_dtype=st.just("fp16"),
    output_dtype=st.just("fp16"),
    layout=st.just(CUDA_LAYOUT),
    act_order=st.booleans(),
)


@settings(deadline=None)
@given(PROBLEMS, GPUS)
def test_the_heuristic_is_legal_for_every_format(problem, device):
    families = families_for(problem, device)
    assert "dequantize" in families
    config = heuristic(problem, device)
    assert config_violations(config, problem, device) == []
    if "skinny" in families and problem.m <= 32:
        assert isinstance(config, SkinnyConfig)


@settings(deadline=None, max_examples=30)
@given(PROBLEMS, GPUS)
def test_intervals_have_no_gap(problem, device):
    intervals = heuristic_intervals(problem, device)
    assert (intervals[0][0], intervals[-1][1]) == (0, M_END)
    assert all(a[1] == b[0] for a, b in pairwise(intervals))
