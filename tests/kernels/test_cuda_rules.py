"""NVRTC's static_asserts are the rules of spec/legality, by name and by number."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from cuda_cases import PLAIN, compile_cases, gpu, problem

from humming.errors import CompileError
from humming.jit.cuda.source import INCLUDE_DIR
from humming.jit.cuda.weight_constants import weight_constants
from humming.jit.nvrtc import compile_cubin
from humming.jit.source import KernelSource, headers_of
from humming.spec.config import DequantizeConfig, KernelConfig, MmaConfig, SkinnyConfig, WgmmaConfig
from humming.spec.legality import RULES, config_violations, mma_smem_bytes, skinny_smem_bytes

ASSERTED = re.compile(r'static_assert\([^;]*?"((?:skinny|dequantize|mma|wgmma)_\w+)"\)')
RING = replace(PLAIN, num_stages=2)
GROUP = replace(PLAIN, num_stages=2, warpgroup=1, block_m=16)
WGMMA = WgmmaConfig(64, 2, 1, 1, 1, 4, 1, 8, 1, 0, 0)
MMA = MmaConfig(64, 64, 64, 2, 2, 1, 2, 1, 0, 0, 8, 1, 0)
BROKEN: dict[str, tuple[tuple[int, int], str, KernelConfig]] = {
    "skinny_block_m_range": ((9, 0), "bf16", replace(PLAIN, block_m=40)),
    "skinny_tiles_n_range": ((9, 0), "bf16", replace(PLAIN, tiles_n=17)),
    "skinny_warps_range": ((9, 0), "bf16", replace(PLAIN, warps=33)),
    "skinny_split_k_range": ((9, 0), "bf16", replace(PLAIN, split_k=9)),
    "skinny_num_stages_range": ((9, 0), "bf16", replace(PLAIN, num_stages=33)),
    "skinny_x_stages_range": ((9, 0), "bf16", replace(PLAIN, x_stages=5)),
    "skinny_blocks_per_sm_range": ((9, 0), "bf16", replace(PLAIN, warps=1, blocks_per_sm=17)),
    "skinny_dependent_launch_range": ((9, 0), "bf16", replace(PLAIN, dependent_launch=2)),
    "skinny_warpgroup_range": ((9, 0), "bf16", replace(GROUP, warpgroup=2)),
    "skinny_exact_codes_range": ((9, 0), "bf16", replace(PLAIN, exact_codes=2)),
    "skinny_stage_tiles": ((9, 0), "bf16", replace(RING, stage_tiles=3)),
    "skinny_warpgroup_knobs": ((9, 0), "bf16", replace(GROUP, x_stages=1)),
    "skinny_warpgroup_device": ((10, 0), "bf16", GROUP),
    "skinny_ring_device": ((7, 5), "fp16", RING),
    "skinny_cluster_device": ((8, 9), "bf16", replace(PLAIN, split_k=2)),
    "skinny_dependent_device": ((8, 0), "bf16", replace(PLAIN, dependent_launch=1)),
    "skinny_bf16_device": ((7, 5), "bf16", PLAIN),
    "dequantize_warps_range": ((9, 0), "bf16", DequantizeConfig(17, 1, 0)),
    "dequantize_unroll_range": ((9, 0), "bf16", DequantizeConfig(8, 9, 0)),
    "dequantize_bf16_device": ((7, 5), "bf16", DequantizeConfig(8, 1, 0)),
    "mma_warps_range": ((9, 0), "bf16", replace(MMA, block_n=256, warps_n=16)),
    "mma_block_n_multiple": ((9, 0), "bf16", replace(MMA, block_n=48)),
    "mma_block_m_multiple": ((9, 0), "bf16", replace(MMA, block_m=16)),
    "mma_block_k_multiple": ((9, 0), "bf16", replace(MMA, block_k=96)),
    "mma_groups_whole": ((9, 0), "bf16", replace(MMA, block_k=192)),
    "mma_columns_even": ((9, 0), "bf16", replace(MMA, block_m=80, warps_m=1)),
    "mma_num_stages_range": ((9, 0), "bf16", replace(MMA, num_stages=9)),
    "mma_split_k_range": ((9, 0), "bf16", replace(MMA, split_k=9)),
    "mma_cluster_range": ((9, 0), "bf16", replace(MMA, split_k=2, cluster=2)),
    "mma_stream_k_range": ((9, 0), "bf16", replace(MMA, stream_k=2)),
    "mma_stream_k_knobs": ((9, 0), "bf16", replace(MMA, stream_k=1, split_k=2)),
    "mma_cluster_split": ((9, 0), "bf16", replace(MMA, cluster=1)),
    "mma_raster_group_m_range": ((9, 0), "bf16", replace(MMA, raster_group_m=0)),
    "mma_blocks_per_sm_range": ((9, 0), "bf16", replace(MMA, blocks_per_sm=5)),
    "mma_dependent_launch_range": ((9, 0), "bf16", replace(MMA, dependent_launch=2)),
    "mma_accumulators_fit": ((9, 0), "bf16", replace(MMA, block_m=256, block_n=128)),
    "mma_half_sums": ((9, 0), "bf16", replace(MMA, half_sums=1)),
    "mma_cluster_device": ((8, 0), "bf16", replace(MMA, split_k=2, cluster=1)),
    "mma_dependent_device": ((8, 9), "bf16", replace(MMA, dependent_launch=1)),
    "mma_bf16_device": ((7, 5), "bf16", MMA),
    "wgmma_block_m": ((9, 0), "bf16", replace(WGMMA, block_m=144)),
    "wgmma_warpgroups_range": ((9, 0), "bf16", replace(WGMMA, warpgroups=5, block_m=16)),
    "wgmma_tiles_n_range": ((9, 0), "bf16", replace(WGMMA, tiles_n=5, block_m=16)),
    "wgmma_cluster_n": ((9, 0), "bf16", replace(WGMMA, cluster_n=8)),
    "wgmma_cluster_shares_x": ((9, 0), "bf16", replace(WGMMA, cluster_n=4, block_m=48)),
    "wgmma_split_k": ((9, 0), "bf16", replace(WGMMA, split_k=3)),
    "wgmma_num_stores_range": ((9, 0), "bf16", replace(WGMMA, num_stores=17)),
    "wgmma_num_stages_range": ((9, 0), "bf16", replace(WGMMA, num_stages=2)),
    "wgmma_raster_group_m_range": ((9, 0), "bf16", replace(WGMMA, raster_group_m=0)),
    "wgmma_blocks_per_sm_range": ((9, 0), "bf16", replace(WGMMA, blocks_per_sm=5, block_m=16)),
    "wgmma_stream_k_range": ((9, 0), "bf16", replace(WGMMA, stream_k=2)),
    "wgmma_dependent_launch_range": ((9, 0), "bf16", replace(WGMMA, dependent_launch=2)),
    "wgmma_hopper_device": ((10, 0), "bf16", WGMMA),
}


def test_names_are_the_same_on_both_sides():
    asserted = [
        name for path in INCLUDE_DIR.rglob("*.cuh") for name in ASSERTED.findall(path.read_text())
    ]
    asserted = [name for name in asserted if not name.startswith(("mma_bytes_", "mma_narrow_"))]
    static = {rule.name for rule in RULES if rule.family not in ("cpu", "wgmma8") and rule.static}
    static = {name for name in static if not name.startswith(("mma_bytes_", "mma_narrow_"))}
    assert set(asserted) == static
    assert len(asserted) == len(static)
    assert set(BROKEN) == static


def test_the_compiler_refuses_what_the_rules_refuse():
    cases = [(gpu(capability), dtype, config) for capability, dtype, config in BROKEN.values()]
    for name, case, result in zip(BROKEN, cases, compile_cases(cases), strict=True):
        device, dtype, config = case
        assert name in [v.rule for v in config_violations(config, problem(dtype), device)]
        assert isinstance(result, CompileError), name
        assert f'"{name}"' in str(result)


def test_every_rule_has_a_sentence_and_holds_for_a_plain_config():
    assert config_violations(PLAIN, problem("fp16"), gpu((7, 5))) == []
    assert config_violations(DequantizeConfig(8, 2, 0), problem("bf16"), gpu((12, 0))) == []
    for name in ("skinny_smem_fits", "skinny_blocks_per_sm_fit", "skinny_grid_fits"):
        assert name in {rule.name for rule in RULES if not rule.static}
    crowded = replace(PLAIN, block_m=32, warps=8, blocks_per_sm=4)
    broken = config_violations(crowded, problem("fp16"), gpu((7, 5)))
    assert {violation.rule for violation in broken} == {
        "skinny_smem_fits",
        "skinny_blocks_per_sm_fit",
    }
    wide = config_violations(replace(PLAIN, tiles_n=1), problem("fp16", n=2**21), gpu((8, 0)))
    assert [violation.rule for violation in wide] == ["skinny_grid_fits"]
    assert "must hold" in wide[0].reason


def _random_config(generator: random.Random) -> SkinnyConfig:
    tiles_n, warpgroup = generator.randint(1, 16), generator.randint(0, 1)
    return replace(
        PLAIN,
        block_m=generator.randint(1, 32),
        tiles_n=tiles_n,
        warps=4 * generator.randint(1, 8) if warpgroup else generator.randint(1, 32),
        split_k=generator.randint(1, 8),
        num_stages=generator.randint(1 if warpgroup else 0, 8),
        stage_tiles=generator.choice([t for t in range(1, tiles_n + 1) if tiles_n % t == 0]),
        x_stages=generator.randint(2 if warpgroup else 1, 4),
        warpgroup=warpgroup,
    )


PLAN_FORMATS = ("int4g128", "int1g128", "uint3g32z", "nvfp4", "fp8e4m3", "uint7g64z")


def test_the_formula_of_shared_memory_is_the_kernels_own():
    generator = random.Random(1)
    configs = [_random_config(generator) for _ in range(150)]
    configs = [replace(c, stage_tiles=1) if c.num_stages == 0 else c for c in configs]
    text = (
        '#include "humming/memory/skinny_plan.cuh"\n#include "humming/memory/warpgroup_plan.cuh"\n'
    )
    for number, config in enumerate(configs):
        plan = "WarpgroupPlan" if config.warpgroup else "SkinnyPlan"
        asked = problem("bf16", format=PLAN_FORMATS[number % len(PLAN_FORMATS)])
        has = weight_constants(asked)
        values = {
            **vars(config),
            "smem_bytes": skinny_smem_bytes(config, asked),
            "group_size": has["packed_group_size"],
            "has_zero_points": has["has_zero_points"],
        }
        members = " ".join(f"static constexpr int {k} = {v};" for k, v in values.items())
        members += f" struct Codes {{ static constexpr int bits = {has['code_bits']}; }};"
        text += f"struct C{number} {{ {members} }};\n"
        text += f'static_assert(humming::{plan}<C{number}>::bytes == C{number}::smem_bytes, "");\n'
    text += 'extern "C" __global__ void nothing() {}\n'
    source = KernelSource("skinny", text, "cuda", headers=headers_of(text, INCLUDE_DIR))
    compile_cubin(source, "sm_90")
    wrong = replace(configs[0], x_stages=configs[0].x_stages % 4 + 1)
    asked = problem("bf16")
    assert skinny_smem_bytes(wrong, asked) != skinny_smem_bytes(configs[0], asked)


def test_the_formula_of_shared_memory_is_the_mma_kernels_own():
    generator = random.Random(2)
    text = '#include "humming/memory/mma_plan.cuh"\n'
    for number in range(60):
        config = replace(
            MMA,
            block_m=16 * generator.randint(1, 16),
            block_n=16 * generator.randint(1, 16),
            block_k=64 << generator.randint(0, 2),
            num_stages=generator.randint(2, 8),
            warps_m=1,
            warps_n=1,
            warps_k=generator.randint(1, 4),
        )
        asked = problem("bf16", format=PLAN_FORMATS[number % len(PLAN_FORMATS)])
        has = weight_constants(asked)
        values = {
            **vars(config),
            "smem_bytes": mma_smem_bytes(config, asked),
            "group_size": has["packed_group_size"],
            "has_zero_points": has["has_zero_points"],
        }
        members = " ".join(f"static constexpr int {k} = {v};" for k, v in values.items())
        members += f" struct Codes {{ static constexpr int bits = {has['code_bits']}; }};"
        text += f"struct C{number} {{ {members} }};\n"
        text += f'static_assert(humming::MmaPlan<C{number}>::bytes == C{number}::smem_bytes, "");\n'
    text += 'extern "C" __global__ void nothing() {}\n'
    compile_cubin(KernelSource("mma", text, "cuda", headers=headers_of(text, INCLUDE_DIR)), "sm_90")


@pytest.mark.parametrize("dtype", ["fp32"])
def test_other_activations_are_refused_in_one_sentence(dtype):
    from humming.spec.legality import problem_violations

    for family in ("skinny", "dequantize", "mma", "wgmma"):
        (broken,) = problem_violations(family, problem(dtype), gpu((9, 0)))
        assert broken.rule == f"{family}_activations"
        assert "bf16 or fp16" in broken.reason
