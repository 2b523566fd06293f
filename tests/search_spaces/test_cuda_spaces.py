"""The built-in spaces for GPUs: they never run dry, stay affordable, and hold the known winners."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from humming.dispatch.heuristics import heuristic, runners_up
from humming.spec.config import KernelConfig, SkinnyConfig, config_from_dict
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT, layout_for
from humming.spec.legality import config_violations, wgmma_deal
from humming.spec.problem import Problem
from search_spaces import context_of, load_spaces, select
from tests.gpus import gpu
from tuner.searching.candidates import legal_candidates

SPACES = load_spaces()


def _problem(n: int, k: int, m: int, format: str = "int4g128") -> Problem:
    return Problem(format, n, k, m, "fp16", "fp16", layout=CUDA_LAYOUT)


def _legal(family: str, problem: Problem, device: Device) -> list[KernelConfig]:
    space = select(SPACES, family, device, problem.format)
    configs = [
        config_from_dict({"family": family, **values})
        for values in space.prune(context_of(problem, device)).configs
    ]
    return [config for config in configs if not config_violations(config, problem, device)]


@settings(deadline=None, max_examples=60)
@given(
    st.builds(
        _problem,
        n=st.integers(1, 300) | st.integers(1, 200_000),
        k=st.integers(1, 4000).map(lambda eights: 8 * eights),
        m=st.integers(0, 32),
    ),
    st.builds(
        gpu,
        st.sampled_from([(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0), (12, 1)]),
        st.integers(1, 200),
    ),
)
def test_every_problem_of_few_rows_has_candidates_of_both_families(problem, device):
    assert _legal("skinny", problem, device)
    assert _legal("dequantize", problem, device)


@pytest.mark.parametrize("m", [1024, 4096, 2**31 - 1])
def test_many_rows_are_left_to_dequantize(m):
    problem, device = _problem(4096, 4096, m), gpu((9, 0))
    assert not _legal("skinny", problem, device)
    assert 5 <= len(_legal("dequantize", problem, device)) <= 20


@pytest.mark.parametrize("n, k", [(4096, 14336), (6144, 4096), (8192, 8192), (28672, 4096)])
@pytest.mark.parametrize("m", [1, 4, 8, 16, 24, 32])
def test_candidates_of_a_layer_fit_a_budget_of_minutes(n, k, m):
    assert 60 <= len(_legal("skinny", _problem(n, k, m), gpu((9, 0)))) <= 250


FORMATS = ("int1g128", "int2g128", "int3g64", "uint4g128z", "int8", "mxfp4", "nvfp4", "fp8e4m3")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("m", [1, 16, 32, 64])
def test_other_formats_have_as_many_candidates(format, m):
    problem = _problem(8192, 8192, m, format)
    assert 8 <= len(_legal("skinny", problem, gpu((8, 0)))) <= 250
    of_hopper = _legal("skinny", problem, gpu((9, 0))), _legal("wgmma", problem, gpu((9, 0)))
    assert 8 <= len(of_hopper[m > 32]) <= 250
    assert _legal("skinny", _problem(1000, 1004, m, format), gpu((7, 5)))
    assert _legal("dequantize", _problem(1000, 1004, m, format), gpu((9, 0)))


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_only_what_the_device_has_is_tried(capability):
    configs = _legal("skinny", _problem(8192, 8192, 32), gpu(capability))
    assert {c.dependent_launch for c in configs} == {int(capability >= (9, 0))}
    assert {c.warpgroup for c in configs} == ({0, 1} if capability == (9, 0) else {0})
    assert ({c.split_k for c in configs} > {1}) == (capability >= (9, 0))
    assert ({c.num_stages for c in configs} == {0}) == (capability < (8, 0))
    assert {c.warps for c in configs if not c.warpgroup} <= {4, 8, 16}


# (n, k), m, block_m tiles_n warps split_k num_stages stage_tiles x_stages blocks_per_sm warpgroup:
# the fastest of thousands of random configs on an H200, cold weights, bf16.
WINNERS = [
    ((8192, 8192), 1, "1 4 16 1 2 2 2 1 0"),
    ((8192, 8192), 8, "8 8 8 2 0 1 2 1 0"),
    ((8192, 8192), 16, "16 8 8 2 4 2 2 1 0"),
    ((8192, 8192), 32, "32 2 12 2 2 2 3 1 1"),
    ((6144, 4096), 1, "1 6 8 2 8 1 2 2 0"),
    ((6144, 4096), 8, "8 6 8 2 3 2 2 2 0"),
    ((6144, 4096), 16, "16 6 8 2 0 1 2 1 0"),
    ((6144, 4096), 32, "32 4 8 4 2 2 3 1 1"),
    ((28672, 4096), 1, "1 7 8 1 4 1 2 1 0"),
    ((28672, 4096), 8, "8 14 16 1 3 2 2 1 0"),
    ((28672, 4096), 16, "16 14 8 1 4 2 2 1 0"),
    ((28672, 4096), 32, "32 7 8 2 4 1 3 1 1"),
    ((4096, 14336), 1, "1 2 16 1 3 1 2 1 0"),
    ((4096, 14336), 8, "8 4 8 2 0 1 2 1 0"),
    ((4096, 14336), 16, "16 4 8 2 3 2 2 1 0"),
    ((4096, 14336), 32, "32 4 8 2 3 2 1 1 0"),
    ((8192, 1024), 1, "1 4 4 1 2 4 2 2 0"),
    ((8192, 1024), 8, "8 4 8 1 0 1 1 2 0"),
    ((8192, 1024), 16, "16 1 8 1 4 1 3 1 1"),
    ((8192, 1024), 32, "32 1 8 1 4 1 3 1 1"),
    ((7168, 8192), 1, "1 7 16 2 3 1 2 1 0"),
    ((7168, 8192), 8, "8 8 4 4 0 1 2 2 0"),
    ((7168, 8192), 16, "16 8 4 4 2 4 2 2 0"),
    ((7168, 8192), 32, "32 4 8 4 2 2 3 1 1"),
]
KNOBS = (
    "block_m",
    "tiles_n",
    "warps",
    "split_k",
    "num_stages",
    "stage_tiles",
    "x_stages",
    "blocks_per_sm",
    "warpgroup",
)


@pytest.mark.parametrize(("shape", "m", "winner"), WINNERS)
def test_known_winners_are_among_the_candidates(shape, m, winner):
    knobs = dict(zip(KNOBS, map(int, winner.split()), strict=True))
    config = SkinnyConfig(**knobs, dependent_launch=1, exact_codes=0)
    assert config in _legal("skinny", _problem(*shape, m), gpu((9, 0)))


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("m", [17, 32, 48, 64, 100, 128, 256, 1000])
def test_mma_has_candidates_for_many_rows(m, capability):
    for n, k in ((8192, 8192), (4096, 14336), (640, 512)):
        configs = _legal("mma", _problem(n, k, m), gpu(capability))
        least = 0 if capability == (9, 0) and m > 64 else 1  # wgmma has them
        assert least <= len(configs) <= 240
        assert {c.dependent_launch for c in configs} <= {int(capability >= (9, 0))}
        assert all(c.cluster == (c.split_k > 1 and capability >= (9, 0)) for c in configs)


@settings(deadline=None, max_examples=40)
@given(
    st.builds(
        _problem,
        n=st.integers(1, 300) | st.integers(1, 30_000),
        k=st.integers(1, 4000).map(lambda eights: 8 * eights),
        m=st.integers(17, 5000),
        format=st.sampled_from(["int4g128", "int8", "uint3g64z", "mxfp4"]),
    )
)
@example(_problem(257, 904, 33))
def test_no_two_candidates_of_wgmma_are_one_kernel_in_effect(problem):
    device = gpu((9, 0))
    found = _legal("wgmma", problem, device)
    for config in found:
        if config.stream_k:
            assert wgmma_deal(config, problem.m, problem.n, problem.k, 132).runs, str(config)
    tiles = {replace(config, num_stages=3): config for config in found}
    for config, most in ((replace(c, num_stages=3), c) for c in found):
        assert tiles[config] == most, "as many stages as fit, and no fewer beside them"


@pytest.mark.parametrize("n, k", [(8192, 8192), (7168, 8192), (8192, 1024), (28672, 4096)])
@pytest.mark.parametrize("m", [64, 256, 1024])
def test_runners_up_are_among_few_candidates(n, k, m):
    problem, device = _problem(n, k, m), gpu((9, 0))
    found = _legal("wgmma", problem, device)
    assert 6 <= len(found) <= 24
    ranked = runners_up(problem, device)
    assert ranked[0] in found
    assert len(set(ranked) & set(found)) >= len(ranked) / 2
    assert not any(config_violations(config, problem, device) for config in ranked)


@pytest.mark.parametrize("format", ["fp8e4m3-fp8e4m3", "int4-fp8e4m3", "mxfp4-fp8e4m3"])
@pytest.mark.parametrize("n, k", [(8192, 8192), (6144, 4096), (4096, 14336), (8192, 1024)])
def test_clusters_of_bytes_that_share_k_are_tried_where_blocks_are_few(n, k, format):
    device, shared = gpu((9, 0), 132), set()
    for m in (1, 32, 64, 128, 256, 1024, 4096):
        problem = Problem(format, n, k, m, layout=layout_for(device, format))
        found = _legal("wgmma8", problem, device)
        assert len(found) <= 350
        default = heuristic(problem, device)
        assert default in found or getattr(default, "split_k", 1) == 1
        for config in found:
            blocks = wgmma_deal(config, m, n, k, 132).clusters * config.split_k
            assert config.split_k == 1 or blocks <= 132 * config.blocks_per_sm
        shared |= {config.split_k for config in found if m <= 256}
        assert m <= 512 or {config.split_k for config in found} == {1}
    assert shared >= {1, 2}


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0), (12, 0)])
def test_every_gpu_has_spaces_for_fp8_by_fp8(capability):
    format, device = "fp8e4m3-fp8e4m3", gpu(capability)
    problem = Problem(format, 512, 1024, 64, layout=layout_for(device, format))
    assert legal_candidates(problem, device, SPACES).configs
