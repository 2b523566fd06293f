"""The family mma compiles for every GPU since Turing; its large tiles keep to their registers."""

from __future__ import annotations

import pytest
from cuda_cases import CAPABILITIES, compile_cases, gpu, problem
from mma_cases import PLAIN_MMA, mma_configs, mma_cover

from humming.jit.nvrtc import Cubin
from humming.spec.legality import config_violations


def test_a_pairwise_cover_compiles_without_warnings():
    cases = mma_cover()
    assert {case[0].compute_capability for case in cases} == set(CAPABILITIES)
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert "warning" not in cubin.report, f"{case}: {cubin.report}"


@pytest.mark.parametrize(
    "capability",
    [
        (9, 0),
        pytest.param((8, 0), marks=pytest.mark.slow),
        pytest.param((12, 0), marks=pytest.mark.slow),
    ],
)
def test_large_tiles_spill_no_registers(capability):
    cases = [(gpu(capability), "bf16", config) for config in mma_configs(capability)]
    cases = [case for case in cases if case[2].warps <= 8]
    assert cases
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert cubin.spill_bytes == 0, f"{case}: {cubin.report}"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_gpu_runs_the_plain_config(capability):
    assert not config_violations(PLAIN_MMA, problem("fp16"), gpu(capability))
