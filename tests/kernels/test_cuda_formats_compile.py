"""Every weight format compiles by each CUDA family for every GPU since Turing, and default configs
keep to their registers. Configs of int4g128 in full are test_cuda_compile's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from cuda_cases import CAPABILITIES, PLAIN, gpu, problem
from format_cases import FORMATS
from mma_cases import PLAIN_MMA
from wgmma_cases import PLAIN_WGMMA

from humming.dispatch.heuristics import heuristic
from humming.errors import CompileError, FormatError
from humming.jit import nvrtc
from humming.jit.cuda.source import render_cuda
from humming.jit.source import render
from humming.spec.config import DequantizeConfig, KernelConfig
from humming.spec.device import Device
from humming.spec.legality import config_violations, families_for
from humming.spec.problem import Problem

Call = tuple[KernelConfig, Problem, Device]

CONFIGS: dict[str, KernelConfig] = {"skinny": PLAIN, "dequantize": DequantizeConfig(8, 2, 0)}
PLAIN_CONFIGS: tuple[KernelConfig, ...] = (*CONFIGS.values(), PLAIN_MMA, PLAIN_WGMMA)
KINDS = [(dtype, act_order) for dtype in ("bf16", "fp16") for act_order in (False, True)]


def _calls(families: list[str], formats: Sequence[str]) -> Iterator[Call]:
    """Each family and format once, on one GPU after another, by one activation type after another;
    every third with act-order."""
    number = 0
    for family in families:
        for format in formats:
            for _ in CAPABILITIES:
                number += 1
                device = gpu(CAPABILITIES[number % len(CAPABILITIES)])
                dtype = ("bf16", "fp16")[number // len(CAPABILITIES) % 2]
                asked = problem(dtype, format=format, act_order=number % 3 == 0)
                if not config_violations(CONFIGS[family], asked, device):
                    yield CONFIGS[family], asked, device
                    break


def _compile(calls: list[Call]) -> None:
    def one(call: Call) -> str:
        config, asked, device = call
        source = render(config, asked)
        try:
            cubin = nvrtc.compile_cubin(source, nvrtc.nvrtc_arch(source, device))
        except CompileError as error:
            return f"{call}: {error}"
        return f"{call}: {cubin.report}" if "warning" in cubin.report else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        assert [said for said in pool.map(one, calls) if said] == []


def test_a_cover_of_formats_and_gpus_compiles_without_warnings():
    calls = [*_calls(["skinny"], FORMATS[::2]), *_calls(["dequantize"], FORMATS[1::2])]
    seen = {asked.format for _, asked, _ in calls}
    assert set(FORMATS) - seen <= {"int5g40", "fp5e2m2g40", "uint4g24z"}  # not by skinny
    for family in CONFIGS:
        archs = {device.arch for config, _, device in calls if config.family == family}
        assert len(archs) >= 10
    _compile(calls)


@pytest.mark.slow
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_format_compiles_by_every_family_for_every_gpu(capability):
    """Each by one activation type, with or without act-order; from one to the next all take the
    next."""
    calls, turn = [], CAPABILITIES.index(capability)
    for config in PLAIN_CONFIGS:
        for number, format in enumerate(FORMATS):
            for step in range(len(KINDS)):
                dtype, act_order = KINDS[(turn + number + step) % len(KINDS)]
                asked = problem(dtype, format=format, act_order=act_order)
                if not config_violations(config, asked, gpu(capability)):
                    calls.append((config, asked, gpu(capability)))
                    break
    assert len(calls) > 2 * len(FORMATS)
    _compile(calls)


def _spilled(formats: tuple[str, ...], capability: tuple[int, int], rows: list[int]) -> list[str]:
    """Default configs that spill registers, each of one activation type and shape: from one to the
    next all take the next."""
    device, found, turn = gpu(capability), {}, CAPABILITIES.index(capability)
    for number, format in enumerate(formats):
        for step, m in enumerate(rows):
            n, k = ((8192, 8192), (4096, 14336), (1000, 520))[(number + step) % 3]
            for other in range(2):
                dtype = ("bf16", "fp16")[(number + step + turn + other) % 2]
                asked = problem(dtype, n, k, m, format)
                if families_for(asked, device):
                    found[heuristic(asked, device), format, dtype] = asked
                    break

    def one(asked: tuple[KernelConfig, Problem]) -> str:
        source = render(*asked)
        cubin = nvrtc.compile_cubin(source, nvrtc.nvrtc_arch(source, device))
        return f"{asked}: {cubin.report}" if cubin.spill_bytes else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        calls = [(key[0], asked) for key, asked in found.items()]
        return [said for said in pool.map(one, calls) if said]


def test_default_configs_of_a_hopper_spill_no_registers_for_any_kind_of_format():
    assert _spilled(("uint4g128z", "nvfp4"), (9, 0), [1, 16]) == []


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)])
def test_default_configs_spill_no_registers_for_any_format(capability):
    assert _spilled(FORMATS, capability, [1, 8, 16, 24, 32]) == []


@pytest.mark.parametrize("format", ["int4g20", "fp8e4m3b20", "int4g20-int8"])
def test_what_the_layout_or_a_family_lacks_is_refused_by_name(format):
    with pytest.raises(FormatError, match=f"got '{format}'"):
        render_cuda(PLAIN, problem("bf16", format=format))


def test_skinny_says_which_formats_are_left_to_dequantize():
    from humming.spec.legality import problem_violations

    for format, dtype, rule in (
        ("int4g24", "bf16", "skinny_group_size"),
        ("uint4g32zf", "bf16", "skinny_float_zero_points"),
        ("fp8e6m1", "fp16", "skinny_exponents"),
    ):
        (broken,) = problem_violations("skinny", problem(dtype, format=format), gpu((9, 0)))
        assert broken.rule == rule
        assert "dequantize" in broken.reason
        assert problem_violations("dequantize", problem(dtype, format=format), gpu((9, 0))) == []
