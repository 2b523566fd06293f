"""The family wgmma compiles for its GPU with products that overlap, within its registers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from cuda_cases import CAPABILITIES, compile_cases, gpu, problem
from wgmma_cases import HOPPER, PLAIN_WGMMA, wgmma_configs

from humming.jit.cuda.source import INCLUDE_DIR
from humming.jit.nvrtc import Cubin, compile_cubin
from humming.jit.source import KernelSource, headers_of
from humming.spec.legality import (
    config_violations,
    problem_violations,
    wgmma_deal,
    wgmma_smem_bytes,
)


def test_products_overlap_and_no_register_spills():
    configs = wgmma_configs()
    cases = [
        (gpu(HOPPER), ("bf16", "fp16")[index % 3 == 2], config)
        for index, config in enumerate(configs)
    ]
    for case, cubin in zip(cases, compile_cases(cases), strict=True):
        assert isinstance(cubin, Cubin), f"{case}: {cubin}"
        assert "serialized" not in cubin.report, f"{case}: {cubin.report}"
        assert "warning" not in cubin.report, f"{case}: {cubin.report}"
        assert cubin.spill_bytes == 0, f"{case}: {cubin.report}"


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_only_hopper_runs_it(capability):
    names = {v.rule for v in problem_violations("wgmma", problem("fp16"), gpu(capability))}
    assert names == (set() if capability == HOPPER else {"wgmma_hopper_device"})


def test_the_formula_of_shared_memory_is_the_wgmma_kernels_own():
    generator = random.Random(3)
    text = '#include "humming/memory/wgmma_plan.cuh"\n'
    for number in range(60):
        config = replace(
            PLAIN_WGMMA,
            block_m=16 * generator.randint(1, 16),
            warpgroups=generator.randint(1, 4),
            tiles_n=generator.randint(1, 4),
            num_stages=generator.randint(3, 12),
            blocks_per_sm=generator.randint(1, 2),
            split_k=generator.choice((1, 2, 4)),
            num_stores=generator.choice((1, 2, 8)),
        )
        bits = generator.randint(1, 8)
        asked = problem("bf16", format=f"int{bits}g128")
        values = {**vars(config), "smem_bytes": wgmma_smem_bytes(config, asked), "code_bits": bits}
        members = " ".join(f"static constexpr int {k} = {v};" for k, v in values.items())
        text += f"struct C{number} {{ {members} }};\n"
        text += (
            f'static_assert(humming::WgmmaPlan<C{number}>::bytes == C{number}::smem_bytes, "");\n'
        )
    text += 'extern "C" __global__ void nothing() {}\n'
    source = KernelSource("wgmma", text, "cuda", headers=headers_of(text, INCLUDE_DIR))
    compile_cubin(source, "sm_90")


def test_registers_and_shared_memory_are_known_before_compiling():
    crowded = replace(PLAIN_WGMMA, block_m=256, tiles_n=2)
    (broken,) = config_violations(crowded, problem("bf16"), gpu(HOPPER))
    assert broken.rule == "wgmma_registers_fit"
    deep = replace(PLAIN_WGMMA, block_m=256, num_stages=12)
    names = {violation.rule for violation in config_violations(deep, problem("bf16"), gpu(HOPPER))}
    assert names == {"wgmma_smem_fits", "wgmma_blocks_per_sm_fit"}


def test_every_unit_of_work_is_dealt_out_once():
    generator = random.Random(4)
    for _ in range(300):
        config = generator.choice(wgmma_configs())
        m, n, k = (
            generator.randint(1, 3000),
            generator.randint(1, 30000),
            generator.randint(1, 9000),
        )
        dealt = wgmma_deal(config, m, n, k, generator.choice((1, 78, 114, 132)))
        rows = 64 * config.tiles_n * config.warpgroups * config.cluster_n
        tiles = -(-m // config.block_m) * -(-n // rows)
        assert dealt.whole + dealt.streamed == tiles
        units = dealt.streamed * -(-k // 128)
        assert (dealt.runs > 0) == (dealt.streamed > 0)
        assert dealt.runs <= units, "an empty run would be waited for"
        assert dealt.runs <= dealt.clusters
        assert dealt.whole == 0 or dealt.clusters <= max(dealt.whole, dealt.runs)
