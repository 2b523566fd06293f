"""The family mma compiles where it multiplies codes, for every GPU since Turing; NVRTC refuses what
the rules refuse; its shared memory is what the formula says."""

from __future__ import annotations

import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from cuda_cases import CAPABILITIES
from mma_bytes_cases import FORMATS, PLAIN_BYTES, bytes_configs, bytes_problem, takes

from humming.errors import CompileError, FormatError
from humming.jit.cuda.source import INCLUDE_DIR
from humming.jit.nvrtc import Cubin, compile_cubin, nvrtc_arch
from humming.jit.source import companions, render
from humming.spec.config import MmaConfig
from humming.spec.legality import RULES, config_violations, problem_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

Case = tuple[tuple[int, int], MmaConfig, Problem]
ASSERTED = re.compile(r'static_assert\([^;]*?"(mma_(?:bytes|narrow)_\w+)"\)')


def cover(seed: int, most: int) -> list[Case]:
    """Cases in which every format meets a GPU and every config is met, few of them twice."""
    draw, found = random.Random(seed), []
    for format in FORMATS:
        able = [c for c in CAPABILITIES if takes(format, c)]
        for capability in draw.sample(able, min(most, len(able))):
            dtype = "fp16" if capability < (8, 0) else draw.choice(("bf16", "fp16"))
            configs = bytes_configs(format, capability, dtype)
            found.append((capability, draw.choice(configs), bytes_problem(format, dtype)))
    return found


def compiled_all(cases: list[Case]) -> list[Cubin | CompileError]:
    def one(case: Case) -> Cubin | CompileError:
        capability, config, problem = case
        source = render(config, problem)
        try:
            return compile_cubin(source, nvrtc_arch(source, gpu(capability)))
        except CompileError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, cases))


def check(cases: list[Case]) -> None:
    for case, cubin in zip(cases, compiled_all(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert "warning" not in cubin.report, f"{case}: {cubin.report}"


def test_some_of_each_kind_compile():
    chosen = [case for case in cover(1, 1) if case[2].format in FORMATS[::6]]
    check(chosen)


@pytest.mark.slow
def test_every_format_compiles_for_several_gpus():
    check(cover(2, 4))


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_gpu_runs_the_plain_config(capability):
    for format in FORMATS:
        if takes(format, capability):
            asked = bytes_problem(format, "fp16")
            assert not problem_violations("mma", asked, gpu(capability))
            assert not config_violations(PLAIN_BYTES, asked, gpu(capability))


INT8, INT4, FP8 = "int8-int8", "int4g128-int4", "fp8e4m3-fp8e4m3"
NARROW = replace(PLAIN_BYTES, block_k=256, narrow=1)
BROKEN: dict[str, tuple[tuple[int, int], str, MmaConfig]] = {
    "mma_bytes_block_k_multiple": ((9, 0), INT8, replace(PLAIN_BYTES, block_k=192)),
    "mma_bytes_accumulators_fit": (
        (9, 0),
        "int4g128-int8g128",
        replace(PLAIN_BYTES, block_m=128, block_n=128),
    ),
    "mma_bytes_device": ((8, 0), FP8, PLAIN_BYTES),
    "mma_narrow_device": ((9, 0), INT4, NARROW),
}


def test_names_are_the_same_on_both_sides():
    texts = [path.read_text() for path in INCLUDE_DIR.rglob("*.cuh")]
    asserted = sorted(name for text in texts for name in ASSERTED.findall(text))
    static = sorted(
        rule.name
        for rule in RULES
        if rule.static and rule.name.startswith(("mma_bytes_", "mma_narrow_"))
    )
    assert asserted == static == sorted(BROKEN)


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_the_compiler_refuses_what_the_rules_refuse(name):
    capability, format, config = BROKEN[name]
    asked = bytes_problem(format)
    assert name in [v.rule for v in config_violations(config, asked, gpu(capability))]
    source = render(config, asked)
    with pytest.raises(CompileError, match=f'"{name}"'):
        compile_cubin(source, nvrtc_arch(source, gpu(capability)))


def test_other_formats_and_knobs_are_refused_in_one_sentence():
    hopper = gpu((9, 0))
    broken = problem_violations("mma", bytes_problem("int4g16-int8"), hopper)
    assert "mma_bytes_format" in [v.rule for v in broken]
    (broken,) = problem_violations("mma", bytes_problem("nvfp4-nvfp4"), hopper)
    assert broken.rule == "mma_bytes_device"
    with pytest.raises(FormatError, match="multiplies codes of int8"):
        render(PLAIN_BYTES, bytes_problem("int4g16-int8"))
    wide = config_violations(NARROW, bytes_problem("int8-int8"), gpu((8, 0)))
    assert [v.rule for v in wide] == ["mma_narrow_format"]
    plain = replace(bytes_problem("int4"), layout="cuda_n16k64")
    assert "mma_narrow_range" in [v.rule for v in config_violations(NARROW, plain, gpu((8, 0)))]


def test_a_kernel_comes_with_the_one_that_quantizes_x():
    (beside,) = companions(render(PLAIN_BYTES, bytes_problem("int4g128-int8")))
    assert beside.family == "quantize_input"
    (narrow,) = companions(render(NARROW, bytes_problem("int4-int4")))
    assert narrow.static["output"] == "nibbles"
    (numbers,) = companions(
        render(PLAIN_BYTES, Problem("nvfp4-nvfp4", 64, 128, 1, layout="cuda_n16k64"))
    )
    assert numbers.static["output"] == "numbers"
    assert companions(render(PLAIN_BYTES, Problem("int4", 64, 128, 1, layout="cuda_n16k64"))) == ()


@pytest.mark.parametrize("format", ["mxfp4-mxfp4", "nvfp4-nvfp4"])
def test_tensor_cores_that_take_scales_along_are_compiled_for(format):
    for capability in ((12, 0), (12, 1)):
        asked = bytes_problem(format)
        assert takes(format, capability)
        assert not config_violations(NARROW, asked, gpu(capability))
    source = render(NARROW, bytes_problem(format))
    assert nvrtc_arch(source, gpu((12, 0))) == "sm_120a"
    cubin = compile_cubin(source, "sm_120a")
    assert "warning" not in cubin.report
