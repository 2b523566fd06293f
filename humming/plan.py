"""A layer bound to this machine: intervals of m resolved to kernels, and the call itself.

Binding reads tables and detects the device; the first call in an interval compiles or loads its
kernel. After that a call is one bisect, one allocation and one launch, on torch's current stream
where it is a GPU's. Torch modules and ops are linear.py and gemm.py.
"""

from __future__ import annotations

import threading
import warnings
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol, cast

import torch

from humming.dispatch.dispatcher import Dispatch, lookup, resolve, why_unused
from humming.dispatch.intervals import TunedTable
from humming.dispatch.notices import tell
from humming.dispatch.shipped import shipped_table
from humming.errors import (
    CompileError,
    CompilerNotFoundError,
    KernelLoadError,
    LaunchError,
    LegalityError,
    UsageError,
)
from humming.jit.cache import compiled
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.cuda.launcher import PreparedCall, native_launcher
from humming.jit.detect import available_threads
from humming.jit.identity import here, serving_device, serving_device_of, serving_threads
from humming.jit.load import LoadedKernel, Ready, load
from humming.jit.pool import parallel_for_address
from humming.ledger import Tally, tally, watch
from humming.modes import batch_invariant
from humming.quantize.layout import PackedWeight
from humming.spec.config import KernelConfig
from humming.spec.identity import Identity
from humming.spec.problem import Problem

_REFUSALS = (CompileError, CompilerNotFoundError, KernelLoadError, LegalityError, OSError)
_LOCK = threading.RLock()
_MOST_CALLS = 4096


class Place(NamedTuple):
    """Where a plan serves: on GPU `gpu`, or on the CPU (-1) with torch's number of threads; and
    whether rows must have the same bits whatever m."""

    gpu: int
    threads: int
    batch_invariant: bool = False


def place_of(device: torch.device) -> Place:
    """The place that serves tensors on `device` at this moment."""
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return Place(index, 1, batch_invariant())
    return Place(-1, torch.get_num_threads(), batch_invariant())


class _Scratch(threading.local):
    """Scratch of one thread: grows, is never shared, and is not cleared between calls. `address`
    and `size` are the buffer's, asked for once."""

    def __init__(self) -> None:
        self.buffer = torch.empty(0, dtype=torch.uint8)
        self.address, self.size = 0, 0

    def of(self, nbytes: int) -> torch.Tensor:
        """At least `nbytes` bytes, contents undefined."""
        if self.size < nbytes:
            with torch.inference_mode(False):
                self.buffer = torch.empty(nbytes, dtype=torch.uint8)
            self.address, self.size = self.buffer.data_ptr(), nbytes
        return self.buffer


SCRATCH = _Scratch()
_NO_WORKSPACE = torch.empty(0, dtype=torch.uint8)


class Kernel(Protocol):
    """A loaded kernel of any family; see jit/load.py and jit/cuda_load.py."""

    def workspace_bytes(self, m: int, n: int, k: int, threads: int = 1) -> int: ...

    def launch(
        self,
        x: torch.Tensor,
        packed: PackedWeight,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        workspace: torch.Tensor | None = None,
        threads: int = 1,
    ) -> None: ...


class _Call(NamedTuple):
    """An interval's index, its kernel, bytes of workspace, and the number that counts calls."""

    interval: int
    kernel: Kernel
    nbytes: int
    tally: Tally


@dataclass(frozen=True)
class _Bound:
    """One consistent state of a plan, swapped as a whole so that other threads never see half."""

    lows: tuple[int, ...]
    dispatches: tuple[Dispatch, ...]
    kernels: list[Kernel | None]
    calls: dict[int, _Call]
    """m -> what a call takes, of those that were made before."""


class Plan:
    """How one layer is served at one place for one activation type.

    `problem` has m = 0. Raises LegalityError where no family can serve it, TableError where `table`
    is of another layout.
    """

    def __init__(self, problem: Problem, place: Place, table: TunedTable | None) -> None:
        self.problem = problem
        self.table = table
        self.gpu = place.gpu
        self.threads = serving_threads() if place.gpu < 0 else 1
        self.identity = _identity(Place(place.gpu, self.threads))
        self._refused: frozenset[KernelConfig] = frozenset()
        self._bound = self._resolve()

    @property
    def place(self) -> str:
        """Where it serves, as --device says it."""
        return "cpu" if self.gpu < 0 else f"cuda:{self.gpu}"

    @property
    def dispatches(self) -> tuple[Dispatch, ...]:
        """What serves which m at this moment."""
        return self._bound.dispatches

    def run(self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None) -> torch.Tensor:
        """`x[m, k] @ w[n, k].T + bias[n]` as [m, n] in x's dtype; x's rows may be strided."""
        m, n = x.shape[0], weight.n
        out = x.new_empty(m, n)
        if m == 0:
            return out
        bound = self._bound
        index, kernel, nbytes, tally = bound.calls.get(m) or self._call_of(bound, m)
        scratch = SCRATCH.of(nbytes) if self.gpu < 0 else scratch_on_stream(x, nbytes)
        try:
            kernel.launch(x, weight, bias, out, scratch, self.threads)
        except LaunchError as error:
            self._refuse(bound.dispatches[index], error)
            return self.run(x, weight, bias)
        tally[0] += 1
        return out

    def ready(
        self, m: int, weight: PackedWeight, bias: torch.Tensor | None
    ) -> tuple[Ready | None, int]:
        """The launch of `m` contiguous rows with all but x and out laid out, and its bytes of
        scratch; None where there is no such launch: on a GPU, or of no rows."""
        if self.gpu >= 0 or m == 0:
            return None, 0
        bound = self._bound
        _, kernel, nbytes, _ = bound.calls.get(m) or self._call_of(bound, m)
        if not isinstance(kernel, LoadedKernel):
            return None, 0
        return kernel.ready(weight, bias, m, self.threads), nbytes

    def tally(self, m: int) -> Tally:
        """The number that counts calls of `m` rows; see ledger.py."""
        bound = self._bound
        return (bound.calls.get(m) or self._call_of(bound, m)).tally

    def prepared(
        self, x: torch.Tensor, weight: PackedWeight, bias: torch.Tensor | None
    ) -> tuple[PreparedCall | None, int]:
        """The launches of a call like the last one, of contiguous rows x [m, k] on this GPU, with
        all but its addresses laid out, and its bytes of workspace; None where it is no such."""
        m = x.shape[0]
        if m == 0 or torch.cuda.is_current_stream_capturing():
            return None, 0
        bound = self._bound
        index, kernel, nbytes, _ = bound.calls.get(m) or self._call_of(bound, m)
        if not isinstance(kernel, CudaKernel):
            return None, 0
        out, scratch = x.new_empty(m, weight.n), scratch_on_stream(x, nbytes)
        call = kernel.prepared(x, weight, bias, out, scratch)
        if call is not None and call.native:
            missed = bound.dispatches[index].untuned
            watch(self.identity, self.problem.at(m), missed, call, call.counter())
        return call, nbytes

    def load_all(self, m: int | None = None) -> None:
        """Compiles and loads the kernels of all intervals, or of the one that holds `m`."""
        if m is not None:
            lookup(self.dispatches, m)  # raises where m is out of range
        self._require_no_capture(self.dispatches[0])
        if self.threads > 1:
            parallel_for_address()
        if self.gpu >= 0:  # cuBLAS cannot be set up in a graph capture
            native_launcher()
            with torch.cuda.device(self.gpu):
                torch.cuda.current_blas_handle()  # type: ignore[no-untyped-call]
        self._compile_all([d for d in self.dispatches if m is None or d.m_low <= m < d.m_high])
        index = 0
        while index < len(self._bound.lows):
            bound = self._bound
            dispatch = bound.dispatches[index]
            if m is None or dispatch.m_low <= m < dispatch.m_high:
                self._load(bound, index)
            # A refused config resolves anew: begin again, what is loaded is remembered.
            index = index + 1 if self._bound is bound else 0

    def _compile_all(self, dispatches: list[Dispatch]) -> None:
        """Fills the kernel cache in parallel; what fails, fails again where it is loaded."""

        def one(dispatch: Dispatch) -> None:
            with suppress(*_REFUSALS):
                problem = self.problem.at(max(dispatch.m_low, 1))
                compiled(dispatch.config, problem, self.identity.device)

        if len(dispatches) > 1:  # each thread only waits for a compiler process
            with ThreadPoolExecutor(available_threads(), "humming-compile") as pool:
                list(pool.map(one, {d.config: d for d in dispatches}.values()))

    def describe(self) -> str:
        """Where the configs come from, for `print(layer)`."""
        parts = []
        tuned = [d for d in self.dispatches if d.source in ("tuned", "nearest")]
        if self.table is not None and tuned:
            parts.append(f"table {self.table.id[:8]} for m in {_spans(tuned)}")
        shipped = [d for d in self.dispatches if d.source == "shipped"]
        if shipped:
            parts.append(f"shipped table for m in {_spans(shipped)}")
        taken = [
            f"{d.transfer} for m in [{d.m_low}, {d.m_high})" for d in self.dispatches if d.transfer
        ]
        parts += dict.fromkeys(taken)
        if parts:
            return "; ".join([*parts, "else heuristic"])
        if self.table is None:
            return "heuristic (no tuned table)"
        return f"heuristic ({why_unused(self.problem, self.identity, self.table)})"

    def _resolve(self) -> _Bound:
        shipped = shipped_table(self.identity.device)
        dispatches = tuple(resolve(self.problem, self.identity, self.table, self._refused, shipped))
        return _Bound(tuple(d.m_low for d in dispatches), dispatches, [None] * len(dispatches), {})

    def _call_of(self, bound: _Bound, m: int) -> _Call:
        """What a call of `m` rows takes, remembered in `bound` for the next one."""
        index = bisect_right(bound.lows, m) - 1
        kernel = bound.kernels[index] or self._load(bound, index)
        if len(bound.calls) >= _MOST_CALLS:
            bound.calls.clear()
        nbytes = kernel.workspace_bytes(m, self.problem.n, self.problem.k, self.threads)
        missed = bound.dispatches[index].untuned
        counted = tally(self.identity, self.problem.at(m), missed)
        bound.calls[m] = call = _Call(index, kernel, nbytes, counted)
        tell(lookup(self.dispatches, m), self.problem.at(m), self.identity.device, self.place)
        return call

    def _load(self, bound: _Bound, index: int) -> Kernel:
        """The kernel of an interval. A tuned config that cannot run here gives way, once warned."""
        dispatch = bound.dispatches[index]
        self._require_no_capture(dispatch)
        problem = self.problem.at(max(dispatch.m_low, 1))
        with _LOCK:
            kernel = bound.kernels[index]
            if kernel is not None:
                return kernel
            try:
                device = self.identity.device
                kernel = cast(Kernel, load(compiled(dispatch.config, problem, device), device))
            except _REFUSALS as error:
                self._refuse(dispatch, error)
                bound = self._bound
                return self._load(bound, bisect_right(bound.lows, dispatch.m_low) - 1)
            bound.kernels[index] = kernel
            return kernel

    def _require_no_capture(self, dispatch: Dispatch) -> None:
        """Compiling and loading are no part of a CUDA graph."""
        if self.gpu < 0:
            return
        with torch.cuda.device(self.gpu):
            capturing = torch.cuda.is_current_stream_capturing()
        if capturing:
            raise UsageError(
                f"the kernel of m in [{dispatch.m_low}, {dispatch.m_high}) of "
                f"{self.problem.format} n={self.problem.n} k={self.problem.k} must be loaded "
                "before a CUDA graph is captured, but is not; call humming.prepare(model) before "
                "the capture"
            )

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


def _spans(dispatches: list[Dispatch]) -> str:
    return ", ".join(f"[{d.m_low}, {d.m_high}) {d.source} {d.tier}" for d in dispatches)


def scratch_on_stream(x: torch.Tensor, nbytes: int) -> torch.Tensor:
    """`nbytes` bytes on x's GPU for one call.

    Torch's allocator hands a freed block to later work on the same stream only, and a capture has
    its own pool: so neither threads, streams nor graphs share it, and it costs no memory between
    calls.
    """
    return x.new_empty(nbytes, dtype=torch.uint8) if nbytes else _NO_WORKSPACE


@lru_cache(maxsize=64)
def _identity(place: Place) -> Identity:
    """The identity of this machine serving at `place`; asked for once, as it runs a compiler."""
    if place.gpu < 0:
        return here(serving_device(place.threads))
    return here(serving_device_of(torch.device("cuda", place.gpu)))
