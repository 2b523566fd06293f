"""Grouped kernels, and those around them, compile for every GPU since Turing, hardly spilling."""

from __future__ import annotations

from dataclasses import replace

import pytest
from format_cases import FORMATS

from humming.dispatch.dispatcher import why_unservable
from humming.dispatch.heuristics import heuristic, heuristic_intervals
from humming.jit.cuda.experts_source import experts_source
from humming.jit.nvrtc import compile_cubin, nvrtc_arch
from humming.jit.source import render
from humming.spec.config import MmaConfig, SkinnyConfig, Wgmma8Config
from humming.spec.layouts import CUDA_A8_LAYOUT, layout_for
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

QUANTIZED = ("mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128", "int8-int8", "uint4g128z-int8")
CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))


def problem(capability: tuple[int, int], m: int, format: str = "int4g128") -> Problem:
    dtype = "bf16" if capability >= (8, 0) else "fp16"
    return Problem(
        format,
        704,
        2880,
        m,
        dtype,
        dtype,
        layout_for(gpu(capability), format, "moe"),
        "moe",
        experts=32,
        top_k=4,
        routing="uniform",
    )


def check(capability: tuple[int, int], m: int, format: str) -> None:
    asked, device = problem(capability, m, format), gpu(capability)
    config = heuristic(asked, device)
    assert config_violations(config, asked, device) == []
    source = render(config, asked)
    cubin = compile_cubin(source, nvrtc_arch(source, device))
    assert "warning" not in cubin.report, cubin.report
    most = 0 if isinstance(config, Wgmma8Config) else 32
    assert cubin.spill_bytes <= most, (str(config), cubin.report)


@pytest.mark.parametrize("m", [16, 2048])
def test_defaults_of_a_hopper_compile(m):
    check((9, 0), m, "mxfp4")


@pytest.mark.parametrize(("capability", "family"), [((9, 0), Wgmma8Config), ((8, 9), MmaConfig)])
def test_quantized_activations_are_multiplied_as_codes(capability, family):
    asked = problem(capability, 16, "mxfp4-fp8e4m3")
    assert asked.layout == CUDA_A8_LAYOUT
    assert isinstance(heuristic(asked, gpu(capability)), family)
    check(capability, 16, "mxfp4-fp8e4m3")


@pytest.mark.slow
@pytest.mark.parametrize("format", [*QUANTIZED, "int4g128", "uint4g128z", "nvfp4", "fp8e4m3"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_defaults_compile_everywhere(capability, format):
    for m in (1, 16, 64, 128, 2048):
        check(capability, m, format)


@pytest.mark.parametrize(("arch", "kind"), [("sm_75", "swiglu_clamped"), ("sm_90", "silu_clamped")])
def test_the_kernels_around_compile(arch, kind):
    dtype = "fp16" if arch == "sm_75" else "bf16"
    cubin = compile_cubin(experts_source(dtype, kind), arch)
    assert "warning" not in cubin.report, cubin.report
    assert cubin.spill_bytes == 0


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_defaults_are_legal_for_all_sizes(capability):
    device = gpu(capability)
    for n, k in ((33, 100), (192, 64), (704, 640), (7168, 256), (151936, 7168)):
        for format in (*QUANTIZED, "int4g64-int4", "int4g128", "fp8e4m3b128", "uint4g64zf"):
            asked = replace(problem(capability, 0, format), n=n, k=k)
            for low, _, config in heuristic_intervals(asked, device):
                assert config_violations(config, asked.at(low), device) == [], (n, k, format, low)


@pytest.mark.parametrize("capability", [(7, 5), (8, 9), (9, 0), (12, 0)])
def test_defaults_are_legal_for_every_format_that_any_family_takes(capability):
    device, served = gpu(capability), 0
    groups = [f"{of}g{size}" for of in ("int5", "fp6e3m2") for size in (8, 24, 40, 48, 56, 96)]
    zeros = [f"uint4g{size}{kind}" for size in (8, 24, 32, 48, 96) for kind in ("z", "zf")]
    for n, k in ((208, 264), (33, 100)):
        for format in (*FORMATS, *groups, *zeros, "int4g40-fp8e4m3", "fp8e4m3b40"):
            asked = replace(problem(capability, 0, format), n=n, k=k)
            if why_unservable(asked, device):
                continue
            served += 1
            for low, _, config in heuristic_intervals(asked, device):
                assert config_violations(config, asked.at(low), device) == [], (n, k, format, low)
    assert served > len(FORMATS)


def test_tiles_that_would_spill_hundreds_of_bytes_are_no_candidates():
    crowded = {
        "mma_bytes_experts_registers": (
            "mxfp4-fp8e4m3",
            MmaConfig(64, 128, 256, 1, 4, 2, 2, 1, 0, 0, 8, 2, 1),
        ),
        "skinny_experts_registers": ("nvfp4", SkinnyConfig(24, 4, 4, 1, 0, 1, 1, 4, 1, 0, 0)),
    }
    for rule, (format, config) in crowded.items():
        broken = config_violations(config, problem((9, 0), 128, format), gpu((9, 0)))
        assert [violation.rule for violation in broken] == [rule]
