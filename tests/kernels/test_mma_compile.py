"""The family mma compiles for every GPU since Turing; its large tiles keep to their registers."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from cuda_cases import CAPABILITIES, compile_cases, gpu, problem
from mma_cases import PLAIN_MMA, mma_configs, mma_cover

from humming.dispatch.heuristics_mma import mma_default
from humming.jit.nvrtc import Cubin, compile_cubin, nvrtc_arch
from humming.jit.source import render
from humming.spec.legality import config_violations, problem_violations


@pytest.mark.parametrize("everywhere", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_pairwise_cover_compiles_without_warnings(everywhere):
    cases = mma_cover(everywhere)
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
        limit = 32 if case[2].stream_k else 0  # some words that are read once a stage
        assert cubin.spill_bytes <= limit, f"{case}: {cubin.report}"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_gpu_runs_the_plain_config(capability):
    assert not config_violations(PLAIN_MMA, problem("fp16"), gpu(capability))


ROWS = (48, 64, 128, 256, 1024)
FORMATS = (
    "int4",
    "uint4g128z",
    "int8g128",
    "uint8g64z",
    "int3g128",
    "int2g32",
    "int1g64",
    "int5g128",
    "uint7g16z",
    "fp8e4m3",
    "fp8e5m2g128",
    "fp8e4m3b128",
    "fp6e3m2g32",
    "mxfp4",
    "nvfp4",
)


def test_every_kind_of_format_compiles_and_spills_nothing():
    cases = zip(FORMATS, itertools.cycle([(8, 0), (9, 0), (12, 0), (8, 9)]), strict=False)
    sources = [
        (render(PLAIN_MMA, problem("bf16", format=name)), gpu(capability))
        for name, capability in cases
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = list(pool.map(lambda s: compile_cubin(s[0], nvrtc_arch(*s)), sources))
    for name, cubin in zip(FORMATS, cubins, strict=True):
        assert cubin.spill_bytes == 0, name
        assert "warning" not in cubin.report, f"{name}: {cubin.report}"


def test_formats_that_would_round_twice_are_left_to_dequantize():
    for name, activation, rule in (
        ("uint4g64zf", "bf16", "mma_rounds_once"),
        ("mxfp4", "fp16", "mma_rounds_once"),
        ("int4g8", "bf16", "mma_group_size"),
        ("fp8e6m1g128", "fp16", "mma_exponents"),
    ):
        (broken,) = problem_violations("mma", problem(activation, format=name), gpu((9, 0)))
        assert broken.rule == rule
        assert "dequantize" in broken.reason


@pytest.mark.parametrize(
    "capability",
    [(8, 0), *(pytest.param(c, marks=pytest.mark.slow) for c in CAPABILITIES if c != (8, 0))],
)
def test_default_configs_spill_no_registers(capability):
    device = gpu(capability)
    shapes = [(8192, 8192), (6144, 4096), (28672, 4096), (4096, 14336), (8192, 1024), (640, 512)]
    found = {mma_default(problem("fp16", n, k), device, m): None for n, k in shapes for m in ROWS}
    cases = [(device, "fp16", config) for config in found if config]
    assert cases
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert cubin.spill_bytes == 0, f"{case}: {cubin.report}"
