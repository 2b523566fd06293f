"""Blocks of the family skinny that go through tiles compile for every GPU with asynchronous copies,
without spilling; rules say what they are for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from humming.jit.nvrtc import compile_cubin, nvrtc_arch
from humming.jit.source import KERNELS_DIR, render
from humming.jit.source_units import unit_files
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

WALK = SkinnyConfig(8, 8, 1, 1, 2, 2, 1, 4, 0, 0, 0, walk=1)
EXPERTS = {"op": "moe", "experts": 256, "top_k": 8, "routing": "uniform"}


def problem(format: str = "int4g128", k: int = 256, **changed: object) -> Problem:
    made = Problem(format, 7168, k, 64, "bf16", "bf16", CUDA_LAYOUT, **EXPERTS)
    return replace(made, **changed)


def check(config: SkinnyConfig, asked: Problem, capability: tuple[int, int]) -> None:
    device = gpu(capability)
    config = replace(config, dependent_launch=int(capability >= (9, 0)))
    assert config_violations(config, asked, device) == []
    source = render(config, asked)
    cubin = compile_cubin(source, nvrtc_arch(source, device))
    assert "warning" not in cubin.report, cubin.report
    assert cubin.spill_bytes == 0, (str(config), cubin.report)


@pytest.mark.parametrize("format", ["int4g128", "mxfp4"])
def test_they_compile_for_a_hopper(format):
    check(WALK, problem(format), (9, 0))


@pytest.mark.slow
@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("format", ["int4g128", "mxfp4", "nvfp4", "uint4g64zf", "fp8e4m3", "int3"])
def test_they_compile_everywhere(format, capability):
    check(replace(WALK, blocks_per_sm=2), problem(format), capability)
    wide = replace(WALK, block_m=16, tiles_n=4, warps=2, blocks_per_sm=1, stage_tiles=1)
    check(wide, problem(format, 768), capability)


@pytest.mark.parametrize(
    ("changed", "of_problem", "rule"),
    [
        ({"walk": 2}, {}, "skinny_walk_knobs"),
        ({"x_stages": 2}, {}, "skinny_walk_knobs"),
        ({"num_stages": 0, "stage_tiles": 1}, {}, "skinny_walk_knobs"),
        ({"warps": 4, "blocks_per_sm": 1}, {}, "skinny_walk_experts"),
        ({}, {"k": 260}, "skinny_walk_experts"),
        ({}, {"act_order": True}, "skinny_walk_experts"),
    ],
)
def test_rules_say_what_they_are_for(changed, of_problem, rule):
    found = config_violations(replace(WALK, **changed), problem(**of_problem), gpu((9, 0)))
    assert [violation.rule for violation in found] == [rule]


def test_dense_layers_have_no_tiles_to_walk_through():
    dense = replace(problem(), op="dense", experts=None, top_k=None, routing=None)
    found = config_violations(WALK, dense, gpu((9, 0)))
    assert [violation.rule for violation in found] == ["skinny_walk_experts"]


def test_they_are_a_part_of_the_experts_sources_alone():
    walks = {unit: _walks(unit) for unit in ("skinny", "skinny_experts")}
    assert not walks["skinny"]
    folders = {path.parent.name for path in walks["skinny_experts"]}
    assert folders == {"entry", "epilogue", "mainloop", "memory", "scheduler"}


def _walks(unit: str) -> list:
    files = unit_files(KERNELS_DIR / "cuda", unit)
    return [path for path in files if path.name.startswith("skinny_walk")]
