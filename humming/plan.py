"""A layer bound to this machine: intervals of m resolved to kernels, and the call itself.

Binding reads tables and detects the device; the first call in an interval compiles or loads its
kernel. After that a call is one bisect, one allocation and one launch. Torch modules and ops are
linear.py and gemm.py.
"""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import torch

from humming.dispatch.dispatcher import Dispatch, lookup, resolve, why_unused
from humming.dispatch.intervals import TunedTable
from humming.errors import (
    CompileError,
    CompilerNotFoundError,
    KernelLoadError,
    LaunchError,
    LegalityError,
)
from humming.jit.cache import compiled
from humming.jit.identity import here, serving_device
from humming.jit.load import LoadedKernel, load
from humming.jit.pool import parallel_for_address
from humming.quantize.layout import PackedWeight
from humming.spec.config import KernelConfig
from humming.spec.identity import Identity
from humming.spec.problem import Problem

ACTIVATIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""Activation types that a layer takes, and their names in a problem."""

_REFUSALS = (CompileError, CompilerNotFoundError, KernelLoadError, LegalityError, OSError)
_LOCK = threading.RLock()


class _Workspace(threading.local):
    """Scratch of one thread: grows, is never shared, and is not cleared between calls."""

    def __init__(self) -> None:
        self.buffer = torch.empty(0, dtype=torch.uint8)

    def of(self, nbytes: int) -> torch.Tensor:
        """At least `nbytes` bytes, contents undefined."""
        if self.buffer.numel() < nbytes:
            with torch.inference_mode(False):
                self.buffer = torch.empty(nbytes, dtype=torch.uint8)
        return self.buffer


_WORKSPACE = _Workspace()


@dataclass(frozen=True)
class _Bound:
    """One consistent state of a plan, swapped as a whole so that other threads never see half."""

    lows: tuple[int, ...]
    dispatches: tuple[Dispatch, ...]
    kernels: list[LoadedKernel | None]


class Plan:
    """How one layer is served here for one activation type and one number of threads.

    `problem` has m = 0. Raises LegalityError where no family can serve it, TableError where `table`
    is of another layout.
    """

    def __init__(self, problem: Problem, threads: int, table: TunedTable | None) -> None:
        self.problem = problem
        self.table = table
        self.identity = _identity(threads)
        self.threads = threads
        self._refused: frozenset[KernelConfig] = frozenset()
        self._bound = self._resolve()

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """What serves which m at this moment."""
        return self._bound.dispatches

    def run(self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None) -> torch.Tensor:
        """`x[m, k] @ w[n, k].T + bias[n]` as [m, n] in x's dtype; x's rows may be strided."""
        m = x.shape[0]
        out = x.new_empty((m, weight.n))
        if m == 0:
            return out
        bound = self._bound
        index = bisect_right(bound.lows, m) - 1
        kernel = bound.kernels[index] or self._load(bound, index)
        scratch = _WORKSPACE.of(kernel.workspace_bytes(m, weight.n, weight.k, self.threads))
        try:
            kernel.launch(x, weight, bias, out, scratch, self.threads)
        except LaunchError as error:
            self._refuse(bound.dispatches[index], error)
            return self.run(x, weight, bias)
        return out

    def load_all(self, m: int | None = None) -> None:
        """Compiles and loads the kernels of all intervals, or of the one that holds `m`."""
        if m is not None:
            lookup(self.dispatches, m)  # raises where m is out of range
        if self.threads > 1:
            parallel_for_address()
        index = 0
        while index < len(self._bound.lows):
            bound = self._bound
            dispatch = bound.dispatches[index]
            if m is None or dispatch.m_low <= m < dispatch.m_high:
                self._load(bound, index)
            # A refused config resolves anew: begin again, what is loaded is remembered.
            index = index + 1 if self._bound is bound else 0

    def describe(self) -> str:
        """Where the configs come from, for `print(layer)`."""
        tuned = [d for d in self.dispatches if d.source != "heuristic"]
        if self.table is None:
            return "heuristic (no tuned table)"
        if not tuned:
            return f"heuristic ({why_unused(self.problem, self.identity, self.table)})"
        spans = ", ".join(f"[{d.m_low}, {d.m_high}) {d.source} {d.tier}" for d in tuned)
        return f"table {self.table.id[:8]} for m in {spans}; else heuristic"

    def _resolve(self) -> _Bound:
        dispatches = tuple(resolve(self.problem, self.identity, self.table, self._refused))
        return _Bound(tuple(d.m_low for d in dispatches), dispatches, [None for _ in dispatches])

    def _load(self, bound: _Bound, index: int) -> LoadedKernel:
        """The kernel of an interval. A tuned config that cannot run here gives way, once warned."""
        dispatch = bound.dispatches[index]
        problem = self.problem.at(max(dispatch.m_low, 1))
        with _LOCK:
            kernel = bound.kernels[index]
            if kernel is not None:
                return kernel
            try:
                device = self.identity.device
                kernel = load(compiled(dispatch.config, problem, device), device)
            except _REFUSALS as error:
                self._refuse(dispatch, error)
                bound = self._bound
                return self._load(bound, bisect_right(bound.lows, dispatch.m_low) - 1)
            bound.kernels[index] = kernel
            return kernel

    def _refuse(self, dispatch: Dispatch, error: Exception) -> None:
        """Takes `dispatch.config` out of service; raises `error` if it is the heuristic itself."""
        if dispatch.source == "heuristic":
            raise error
        with _LOCK:
            if dispatch.config in self._refused:
                return
            self._refused |= {dispatch.config}
            self._bound = self._resolve()
        warnings.warn(
            f"tuned config '{dispatch.config}' of {self.problem.format} n={self.problem.n} "
            f"k={self.problem.k} cannot run here ({' '.join(str(error).split())[:200]}); the "
            "heuristic serves instead, tune again with humming-tune",
            RuntimeWarning,
            stacklevel=3,
        )


@lru_cache(maxsize=16)
def _identity(threads: int) -> Identity:
    """The identity of this machine serving with `threads`; asked for once, as it runs a
    compiler.
    """
    return here(serving_device(threads))
