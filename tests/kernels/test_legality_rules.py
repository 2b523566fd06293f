"""The compiler's static_asserts are the rules of spec/legality.py, by name and by number."""

from __future__ import annotations

import platform
import re
from dataclasses import fields, replace

import pytest
from kernel_cases import code_paths, configs_of

from humming.dispatch.heuristics import heuristic
from humming.errors import CompileError
from humming.jit.compiler import compile_source, find_compiler
from humming.jit.detect import cpu_device
from humming.jit.source import INCLUDE_DIR, render
from humming.spec.layouts import CPU_LAYOUT, CUDA_A8_LAYOUT, CUDA_LAYOUT
from humming.spec.legality import CPU_MAX_ACCUMULATORS, RULES, config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

ASSERTED = re.compile(r'static_assert\([^;]*?"(cpu_\w+)"\)')
INCLUDED = re.compile(r'#include "(humming/isa/\w+\.h)"')
BROKEN: dict[str, dict[str, object]] = {
    "cpu_block_m_range": {"block_m": 17},
    "cpu_block_n_multiple": {"block_n": 24},
    "cpu_block_k_multiple": {"block_k": 64},
    "cpu_unroll": {"unroll": 3},
    "cpu_prefetch_range": {"prefetch_bytes": 100},
    "cpu_accumulators_fit": {"block_m": 16, "block_n": 128},
    "cpu_bf16_activations": {"code_path": "avx512_bf16"},
    "cpu_bf16_weights": {"code_path": "avx512_bf16"},
    "cpu_int8_weights": {},
}
COMPILED_ON_X86_ONLY = {"cpu_bf16_activations", "cpu_bf16_weights"}
PROBLEM = Problem("int4g128", 16, 128, 1, "fp32", "fp32")
PROBLEMS = {
    "cpu_bf16_weights": Problem("uint4g128zf", 16, 128, 1),
    "cpu_int8_weights": Problem("int6-int8", 16, 128, 1),
}
"""The problems for which other rules than those of PROBLEM are broken."""


def test_names_are_the_same_on_both_sides():
    headers = sorted(INCLUDE_DIR.rglob("*.h"))
    asserted = [name for header in headers for name in ASSERTED.findall(header.read_text())]
    static = {rule.name for rule in RULES if rule.family == "cpu" and rule.static}
    assert set(asserted) == static
    assert len(asserted) == len(static)
    assert set(BROKEN) == static


def test_accumulators_are_the_same_on_both_sides():
    for code_path, most in CPU_MAX_ACCUMULATORS.items():
        text = (INCLUDE_DIR / "humming" / "isa" / f"{code_path}.h").read_text()
        for included in INCLUDED.findall(text):
            text += (INCLUDE_DIR / included).read_text()
        assert re.findall(r"kMaxAccumulators = (\d+)", text) == [str(most)]


@pytest.mark.parametrize("rule", BROKEN)
def test_the_compiler_refuses_what_the_rule_refuses(rule):
    config = replace(configs_of(code_paths()[0])["stream"], **BROKEN[rule])
    problem = PROBLEMS.get(rule, PROBLEM)
    assert rule in [v.rule for v in config_violations(config, problem, cpu_device())]
    if rule in COMPILED_ON_X86_ONLY and platform.machine() != "x86_64":
        return
    with pytest.raises(CompileError, match=rule):
        compile_source(render(config, problem), find_compiler())


@pytest.mark.parametrize("m", [1, 16, 4096])
@pytest.mark.parametrize(
    ("format", "layout", "device"),
    [
        ("int4g128", CPU_LAYOUT, cpu_device()),
        ("int4g128", CUDA_LAYOUT, gpu((8, 0))),
        ("int4g128", CUDA_LAYOUT, gpu((9, 0))),
        ("int8-int8", CUDA_A8_LAYOUT, gpu((8, 0))),
        ("int8-int8", CUDA_A8_LAYOUT, gpu((9, 0))),
    ],
)
def test_a_knob_of_nothing_is_legal_or_not_and_never_an_error(format, layout, device, m):
    asked = Problem(format, 1024, 4096, m, layout=layout)
    config = heuristic(asked, device)
    assert not config_violations(config, asked, device)
    for knob in (f.name for f in fields(config) if f.type == "int"):
        least = replace(config, **{knob: -1})
        assert all(v.reason for v in config_violations(least, asked, device)), knob
        assert config_violations(least, asked, device), knob
        config_violations(replace(config, **{knob: 0}), asked, device)
