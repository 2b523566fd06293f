"""The heuristic is legal wherever the family serves; its intervals say the same as it does."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from humming.dispatch.heuristics import best_code_path, heuristic, heuristic_intervals
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.legality import config_violations, takes
from humming.spec.problem import M_END, Problem

FLAGS = sorted({flag for flags in CODE_PATH_FLAGS.values() for flag in flags})
DEVICES = st.builds(
    Device,
    kind=st.just("cpu"),
    name=st.just("Some CPU"),
    arch=st.sampled_from(["x86_64", "aarch64"]),
    cache_bytes=st.integers(0, 2**30),
    isa=st.one_of(
        st.sampled_from([*CODE_PATH_FLAGS.values()]),
        st.lists(st.sampled_from([*FLAGS]), unique=True).map(tuple),
    ),
    threads=st.one_of(st.none(), st.integers(1, 512)),
)
PROBLEMS = st.builds(
    Problem,
    format=st.sampled_from(
        ["int4g128", "uint4g64zf", "fp8e4m3", "int8-int8", "int3g20", "int3g64"]
    ),
    n=st.one_of(st.integers(1, 64), st.integers(1, 2**20)),
    k=st.integers(1, 2**20),
    m=st.one_of(st.integers(0, 80), st.integers(0, M_END - 1)),
    activation_dtype=st.sampled_from(["fp32", "bf16", "fp16"]),
    bias=st.booleans(),
)


@given(PROBLEMS, DEVICES)
def test_the_heuristic_is_always_legal(problem, device):
    assert config_violations(heuristic(problem, device), problem, device) == []


@given(PROBLEMS, DEVICES)
def test_intervals_cover_every_m_and_agree_with_the_heuristic(problem, device):
    intervals = heuristic_intervals(problem, device)
    assert intervals[0][0] == 0
    assert intervals[-1][1] == M_END
    for left, right in pairwise(intervals):
        assert left[1] == right[0]
        assert left[2] != right[2]
    owner = [config for low, high, config in intervals if low <= problem.m < high]
    assert owner == [heuristic(problem, device)]


@given(PROBLEMS, DEVICES)
def test_the_widest_code_path_that_is_legal_is_taken(problem, device):
    path = best_code_path(problem, device)
    assert device.supports(path)
    wider = list(CODE_PATH_FLAGS)[list(CODE_PATH_FLAGS).index(path) + 1 :]
    assert not any(device.supports(other) and takes(other, problem) for other in wider)


def test_threads_share_k_only_where_n_has_too_few_tiles():
    device = Device("cpu", "Some CPU", "x86_64", 2**25, threads=8)
    assert heuristic(Problem("int4g128", n=16, k=4096, m=1), device).split_k == 8
    assert heuristic(Problem("int4g128", n=32, k=256, m=1), device).split_k == 2
    assert heuristic(Problem("int4g128", n=4096, k=4096, m=1), device).split_k == 1
