"""Every CUDA family compiles for every GPU since Turing, and defaults keep to their registers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from cuda_cases import CAPABILITIES, PLAIN, Case, compile_cases, cover, gpu, problem

from humming.dispatch.heuristics import heuristic
from humming.errors import CompileError
from humming.jit.cuda.source import read_probe_source
from humming.jit.nvrtc import Cubin, compile_cubin
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.legality import families_for

SHAPES = [(8192, 8192), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 1024), (7168, 8192)]
OTHER_SHAPES = [(640, 512), (1024, 28672), (32768, 512), (2048, 1024), (151936, 1024), (1000, 4104)]


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_pairwise_cover_compiles_without_warnings(everywhere):
    cases = cover(everywhere)
    assert {case[0].compute_capability for case in cases} == set(CAPABILITIES)
    assert any(getattr(case[2], "warpgroup", 0) for case in cases)
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert "warning" not in cubin.report, f"{case}: {cubin.report}"
        assert cubin.registers > 0


def _defaults(
    capabilities: list[tuple[int, int]], shapes: list[tuple[int, int]], rows: list[int]
) -> list[Case]:
    """The distinct heuristic configs of these GPUs, with one activation or another."""
    found: dict[tuple[Device, KernelConfig], Case] = {}
    for capability in capabilities:
        for number, (activation, (n, k), m) in enumerate(product(("bf16", "fp16"), shapes, rows)):
            asked, device = problem(activation, n, k, m), gpu(capability)
            if families_for(asked, device):
                config = heuristic(asked, device)
                if number % 2 or (device, config) not in found:
                    found[device, config] = (device, activation, config)
    return list(found.values())


def _assert_no_spills(cases: list[Case]) -> None:
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert cubin.spill_bytes == 0, f"{case}: {cubin.report}"


def test_default_configs_of_a_hopper_spill_no_registers():
    _assert_no_spills(_defaults([(9, 0)], SHAPES[:3], [1, 8, 16, 32]))


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])
def test_default_configs_spill_no_registers(capability):
    _assert_no_spills(_defaults([capability], SHAPES + OTHER_SHAPES, [1, 8, 16, 24, 32]))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_the_read_probe_compiles(arch):
    assert compile_cubin(read_probe_source(), arch).registers > 8


def test_spills_are_seen():
    crowded = replace(PLAIN, block_m=32, tiles_n=16, warps=16)
    (cubin,) = compile_cases([(gpu((9, 0)), "bf16", crowded)])
    assert not isinstance(cubin, CompileError)
    assert cubin.spill_bytes > 0
