"""Kernels that are wrong on purpose, compiled for real, with the C boundary of humming/args.h. No
tests here."""

from __future__ import annotations

from humming.jit.cache import CompiledKernel, compiled_source
from humming.jit.source import KernelSource, render
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem

_TEMPLATE = """
#include <stdint.h>
struct Args {{
  const float* x; const void* codes; const float* scales; const float* zero_points;
  const float* row_scales; const int32_t* permutation; const float* bias; float* out;
  unsigned char* workspace; void* parallel_for; int64_t workspace_bytes, m, n, k, ldx, ldo, threads;
}};
extern "C" int64_t humming_workspace_bytes(int64_t, int64_t, int64_t, int64_t) {{ return 64; }}
extern "C" int32_t humming_gemm(const Args* a) {{ {body} return 0; }}
"""

BODIES = {
    "segfault": "*(volatile int*)8 = 1;",
    "abort": "__builtin_trap();",
    "hang": "volatile int on = 1; while (on) {}",
    "exit": 'extern void leave(int) __asm__("_exit"); leave(7);',
    "status": "return 9;",
    "nothing": "",
    "zeros": "for (int64_t i = 0; i < a->m * a->n; ++i) a->out[i] = 0;",
    "past_out": "for (int64_t i = 0; i < a->m * a->n + 4; ++i) a->out[i] = 0;",
    "past_workspace": "for (int i = 0; i < 80; ++i) a->workspace[i] = 0;",
}


def hostile_kernel(name: str, device: Device) -> CompiledKernel:
    """A compiled fp32 kernel that does what BODIES[name] says."""
    source = KernelSource(
        family="cpu",
        text=_TEMPLATE.format(body=BODIES[name]),
        static={"activation_dtype": "fp32", "output_dtype": "fp32", "code_path": "generic"},
    )
    return compiled_source(source, device.arch)


def edited_kernel(
    config: KernelConfig, problem: Problem, device: Device, wrapper: str
) -> CompiledKernel:
    """The real kernel of `config`, its entry renamed and called by `wrapper`, C++ that defines
    humming_gemm."""
    real = render(config, problem)
    text = real.text.replace("humming_gemm(", "real_gemm(") + wrapper
    source = KernelSource(real.family, text, real.language, real.flags, real.headers, real.static)
    return compiled_source(source, device.arch)
