"""CUDA kernels that are wrong on purpose: the real source of a config, with one thing changed. No
tests here."""

from __future__ import annotations

from dataclasses import replace

from humming.jit.cache import CompiledKernel, compiled_source
from humming.jit.nvrtc import nvrtc_arch
from humming.jit.source import KERNELS_DIR, KernelSource, render
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem

_ENTRY = "humming/entry/skinny.cuh"
_CALL = "  humming::block_skinny<"

BEFORE = {
    "illegal_access": "*(volatile int*)16 = 1;",
    "trap": 'asm volatile("trap;");',
    "hang": """
  for (unsigned long long begin = 0, now = 0; now - begin < 15'000'000'000ull;) {
    asm volatile("nanosleep.u32 1000;\\n\\tmov.u64 %0, %globaltimer;" : "=l"(now));
    if (!begin) begin = now;
  }""",
    "tail": "if (m % humming::Config::block_m) call.m = m - 1;",
    "silent": "return;",
}
"""What runs before the kernel's own work. The hang ends by itself after 15 s: a driver that cannot
end it would keep the GPU from whoever is next."""

AFTER = {
    "past_out": "if (threadIdx.x < 8) ((unsigned short*)out)[(long long)m * n + threadIdx.x] = 0;",
    "racy": "__syncthreads(); if (!threadIdx.x && (clock64() & 32)) *(unsigned short*)out ^= 1;",
}
"""What runs after it: 16 bytes too far, or one bit of one number now and then."""


def hostile_source(name: str, config: KernelConfig, problem: Problem) -> KernelSource:
    """The source of `config`, a skinny one, that does what BEFORE[name] or AFTER[name] says."""
    real = render(config, problem)
    entry = (KERNELS_DIR / "cuda" / "include" / _ENTRY).read_text("utf-8")
    text = real.text.replace(f'#include "{_ENTRY}"', entry.replace("#pragma once", ""))
    head, call, tail = text.partition(_CALL)
    assert call, "the entry of the family skinny has changed"
    line, end, rest = tail.partition("\n")
    head = head.replace("const humming::SkinnyCall call", "humming::SkinnyCall call")
    text = f"{head}  {BEFORE.get(name, '')}\n{call}{line}{end}  {AFTER.get(name, '')}\n{rest}"
    return replace(real, text=text)


def hostile_cuda_kernel(
    name: str, config: KernelConfig, problem: Problem, device: Device
) -> CompiledKernel:
    """`hostile_source`, compiled."""
    source = hostile_source(name, config, problem)
    return compiled_source(source, nvrtc_arch(source, device))
