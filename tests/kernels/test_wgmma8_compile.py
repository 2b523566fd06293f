"""The family wgmma8 compiles for its GPU with products that overlap, within its registers, and its
rules are the compiler's."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from cuda_cases import CAPABILITIES, gpu
from wgmma8_cases import (
    FORMATS,
    HOPPER,
    PLAIN_WGMMA8,
    byte_problem,
    wgmma8_configs,
)

from humming.errors import CompileError
from humming.jit.cuda.byte_source import byte_constants
from humming.jit.cuda.source import INCLUDE_DIR
from humming.jit.nvrtc import compile_cubin, nvrtc_arch
from humming.jit.source import KernelSource, headers_of, render
from humming.spec.legality import (
    RULES,
    config_violations,
    problem_violations,
    wgmma8_smem_bytes,
)

ASSERTED = re.compile(r'static_assert\([^;]*?"(wgmma8_\w+)"\)')
BROKEN = {
    "wgmma8_block_m": {"block_m": 144},
    "wgmma8_warpgroups_range": {"warpgroups": 5, "block_m": 16},
    "wgmma8_tiles_n_range": {"tiles_n": 5, "block_m": 16},
    "wgmma8_rows_in_a_copy": {"warpgroups": 3, "tiles_n": 2},
    "wgmma8_cluster_n": {"cluster_n": 8},
    "wgmma8_cluster_shares_x": {"cluster_n": 4, "block_m": 48},
    "wgmma8_num_stages_range": {"num_stages": 1},
    "wgmma8_raster_group_m_range": {"raster_group_m": 0},
    "wgmma8_stream_k_range": {"stream_k": 2},
    "wgmma8_promote_range": {"promote": 2},
    "wgmma8_dependent_launch_range": {"dependent_launch": 2},
    "wgmma8_blocks_per_sm_range": {"blocks_per_sm": 5},
    "wgmma8_split_k": {"split_k": 2, "stream_k": 1},
    "wgmma8_k_warpgroups": {"k_warpgroups": 3, "warpgroups": 3, "block_m": 16},
    "wgmma8_takes_turns": {"k_warpgroups": 2, "warpgroups": 1},
    "wgmma8_stages_of_turns": {"k_warpgroups": 4, "warpgroups": 4, "num_stages": 6},
}


def _compiles_well(config, format, activation="bf16"):
    source = render(config, byte_problem(format, activation=activation))
    cubin = compile_cubin(source, nvrtc_arch(source, gpu(HOPPER)))
    assert "serialized" not in cubin.report, f"{format} {config}: {cubin.report}"
    assert "warning" not in cubin.report, f"{format} {config}: {cubin.report}"
    # Four warpgroups that take turns lay addresses aside between tiles, outside of the products; of
    # others, one that promotes much does so with a word.
    most = 64 if config.k_warpgroups > 1 else 4 * config.promote
    assert cubin.spill_bytes <= most, f"{format} {config}: {cubin.report}"


@pytest.mark.parametrize("format", FORMATS[:4])
def test_products_overlap_and_no_register_spills(format):
    _compiles_well(wgmma8_configs(format)[0], format)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_config_overlaps_and_spills_no_register(format):
    for index, config in enumerate(wgmma8_configs(format)):
        _compiles_well(config, format, ("bf16", "fp16")[index % 3 == 2])


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_only_hopper_runs_it(capability):
    for format in FORMATS:
        names = {
            v.rule for v in problem_violations("wgmma8", byte_problem(format), gpu(capability))
        }
        assert names == (set() if capability == HOPPER else {"wgmma8_hopper_device"}), format


@pytest.mark.parametrize(
    "format", ["int4g128", "int4g64-fp8e4m3", "uint4g128z-int8", "int3-int8", "mxfp8e4m3-fp8e4m3"]
)
def test_other_formats_are_refused_in_one_sentence(format):
    (broken,) = problem_violations("wgmma8", byte_problem(format), gpu(HOPPER))
    assert broken.rule == "wgmma8_format"
    assert format in broken.reason


def test_groups_are_promoted_and_powers_of_two_are_not():
    (broken,) = config_violations(PLAIN_WGMMA8, byte_problem(FORMATS[4]), gpu(HOPPER))
    assert broken.rule == "wgmma8_promotes_groups"
    promoted = replace(PLAIN_WGMMA8, promote=1)
    (broken,) = config_violations(promoted, byte_problem("mxfp4-fp8e4m3"), gpu(HOPPER))
    assert broken.rule == "wgmma8_promotes_sums"


def test_static_rules_are_the_compilers_by_name():
    asserted = [
        name for path in INCLUDE_DIR.rglob("*.cuh") for name in ASSERTED.findall(path.read_text())
    ]
    static = {rule.name for rule in RULES if rule.family == "wgmma8" and rule.static}
    assert sorted(asserted) == sorted(static)
    assert {*BROKEN, "wgmma8_hopper_device"} == static


def test_the_compiler_refuses_what_the_rules_refuse():
    asked = byte_problem("fp8e4m3-fp8e4m3")
    for name, knobs in BROKEN.items():
        config = replace(PLAIN_WGMMA8, **knobs)
        assert name in [v.rule for v in config_violations(config, asked, gpu(HOPPER))]
        members = " ".join(f"static constexpr int {k} = {v};" for k, v in vars(config).items())
        text = '#include "humming/mainloop/wgmma8_rules.cuh"\n'
        text += f"struct C {{ {members} }};\ntemplate struct humming::Wgmma8Rules<C>;\n"
        source = KernelSource("wgmma8", text, "cuda", headers=headers_of(text, INCLUDE_DIR))
        with pytest.raises(CompileError) as refused:
            compile_cubin(source, "sm_90a")
        assert f'"{name}"' in str(refused.value)


def test_the_formula_of_shared_memory_is_the_wgmma8_kernels_own():
    generator = random.Random(3)
    text = '#include "humming/memory/wgmma8_plan.cuh"\n'
    for number in range(60):
        config = replace(
            PLAIN_WGMMA8,
            block_m=16 * generator.randint(1, 16),
            warpgroups=generator.choice((1, 2, 4)),
            tiles_n=generator.randint(1, 2),
            num_stages=generator.randint(2, 12),
            blocks_per_sm=generator.randint(1, 2),
            split_k=generator.choice((1, 2, 4)),
        )
        config = replace(config, k_warpgroups=generator.choice((1, config.warpgroups)))
        asked = byte_problem(FORMATS[number % len(FORMATS)])
        values = {
            **vars(config),
            "grouped": 0,
            **{k: v for k, v in byte_constants(asked).items() if isinstance(v, int)},
            "group_size": byte_constants(asked)["packed_group_size"],
            "smem_bytes": wgmma8_smem_bytes(config, asked),
        }
        members = " ".join(f"static constexpr int {k} = {v};" for k, v in values.items())
        members += " struct Codes { static constexpr bool has_raw = false; };"
        text += f"struct C{number} {{ {members} }};\n"
        text += (
            f'static_assert(humming::Wgmma8Plan<C{number}>::bytes == C{number}::smem_bytes, "");\n'
        )
    text += 'extern "C" __global__ void nothing() {}\n'
    source = KernelSource("wgmma8", text, "cuda", headers=headers_of(text, INCLUDE_DIR))
    compile_cubin(source, "sm_90")


def test_registers_and_shared_memory_are_known_before_compiling():
    asked = byte_problem("int8-int8")
    crowded = replace(PLAIN_WGMMA8, block_m=256, tiles_n=2, num_stages=2)
    (broken,) = config_violations(crowded, asked, gpu(HOPPER))
    assert broken.rule == "wgmma8_registers_fit"
    deep = replace(PLAIN_WGMMA8, block_m=256, num_stages=12)
    names = {violation.rule for violation in config_violations(deep, asked, gpu(HOPPER))}
    assert names == {"wgmma8_smem_fits", "wgmma8_blocks_per_sm_fit"}
