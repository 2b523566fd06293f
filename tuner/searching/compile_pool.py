"""Compiles candidates in parallel, beside timing where cores are left for it. Each compiler is a
process of its own, so its crash or hang is a result, not an end."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from humming.errors import CompileError
from humming.jit.cache import TIMEOUT_S, CompiledKernel, compiled
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem

Compiled = CompiledKernel | CompileError


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def spare_cores(device: Device) -> int:
    """Cores that compilers may use while `device` is timed: on a GPU all but the one that launches,
    on a CPU those that its threads leave."""
    return cores() - 1 if device.kind == "cuda" else cores() - (device.threads or 1)


def compile_all(
    configs: Iterable[KernelConfig],
    problem: Problem,
    device: Device,
    limit_s: float = TIMEOUT_S,
) -> list[Compiled]:
    """One result per config, in order: the kernel, from the cache where it was compiled before, or
    what the compiler said, in at most `limit_s`.

    Threads, since each only waits for a compiler process.
    """

    def one(config: KernelConfig) -> Compiled:
        return compile_one(config, problem, device, limit_s)

    with ThreadPoolExecutor(cores(), thread_name_prefix="humming-compile") as pool:
        return list(pool.map(one, configs))


def compile_one(
    config: KernelConfig, problem: Problem, device: Device, limit_s: float = TIMEOUT_S
) -> Compiled:
    """The kernel of `config`, or what the compiler said."""
    try:
        return compiled(config, problem, device, min(limit_s, TIMEOUT_S))
    except CompileError as error:
        return error


class Ahead:
    """Compiles of one problem that run while others are timed, taken in the order in which they
    were begun; a context manager. What still runs at its end goes into the cache, in its time."""

    def __init__(self, problem: Problem, device: Device, workers: int) -> None:
        self._problem, self._device = problem, device
        self._waiting: deque[tuple[KernelConfig, Future[Compiled]]] = deque()
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="humming-compile")

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, config: KernelConfig, limit_s: float) -> None:
        """Compile `config` as soon as a core is free."""
        future = self._pool.submit(compile_one, config, self._problem, self._device, limit_s)
        self._waiting.append((config, future))

    def next(self) -> tuple[KernelConfig, Compiled]:
        """The config that was begun first, once it is compiled."""
        config, future = self._waiting.popleft()
        return config, future.result()
