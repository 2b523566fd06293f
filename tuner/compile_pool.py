"""Compiles candidates in parallel. Each compiler is a process of its own, so its crash or hang is a
result, not an end."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from humming.errors import CompileError
from humming.jit.cache import CompiledKernel, compiled
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def compile_all(
    configs: Iterable[KernelConfig], problem: Problem, device: Device
) -> list[CompiledKernel | CompileError]:
    """One result per config, in order: the kernel, from the cache where it was compiled before, or
    what the compiler said.

    Threads, since each only waits for a compiler process.
    """

    def one(config: KernelConfig) -> CompiledKernel | CompileError:
        try:
            return compiled(config, problem, device)
        except CompileError as error:
            return error

    with ThreadPoolExecutor(cores(), thread_name_prefix="humming-compile") as pool:
        return list(pool.map(one, configs))
