"""The worker process: holds one problem's tensors, verifies and times what it is sent, and may die
doing so. It reads and writes no database and compiles nothing; what it is asked is in messages.py,
its other side is isolation.py."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch

from humming.errors import HummingError, KernelLoadError, LaunchError
from humming.jit.bandwidth import read_bandwidth
from humming.jit.load import LoadedKernel, load
from humming.quantize.layout import PackedWeight
from humming.spec.device import Device
from tuner.measure import paired_us, rotation, samples_us
from tuner.messages import (
    Answer,
    Baseline,
    Done,
    Open,
    Race,
    Raced,
    Rate,
    ReadLimit,
    Request,
    Trial,
    Trialled,
)
from tuner.verify import (
    Launch,
    WrongResultError,
    check,
    float_type,
    make_case,
    sizes_to_check,
    twin_rows,
)

_PR_SET_PDEATHSIG = 1  # prctl(2)
_WORKSPACE_GUARD = 256


class Bench:
    """The tensors of the open problem and what is done with them."""

    def __init__(self, request: Open, device: Device) -> None:
        problem = request.problem
        self._problem, self._device = problem, device
        self._span = (request.m_low, request.m_high)
        self._seed = (
            time.time_ns() % 2**31
        )  # fresh data each time: a kernel right on one draw only must not pass twice
        self._case = make_case(problem, problem.n, self._seed)
        twin = twin_rows(problem.n)
        self._twin = self._case if twin == problem.n else make_case(problem, twin, self._seed + 1)
        sets = rotation(self._case.packed.nbytes, device.cache_bytes)
        self._weights = [self._case.packed, *(_copy(self._case.packed) for _ in range(sets - 1))]

    def trial(self, request: Trial) -> Trialled:
        """Verify, then time."""
        try:
            kernel = load(request.kernel, self._device)
            worst = self._verify(kernel, request.block_m)
            samples = samples_us(self._calls(kernel, self._problem.m), request.best_us)
        except WrongResultError as error:
            return Trialled("wrong_result", detail=str(error))
        except (KernelLoadError, LaunchError) as error:
            return Trialled("launch_error", detail=str(error))
        return Trialled("ok", tuple(samples), worst)

    def baseline(self) -> Trialled:
        """torch.nn.functional.linear on 16-bit (or fp32) weights of the same shape, cold as
        well."""
        x = self._rows_of_x(self._problem.m)
        weight = self._case.quantized.dequantize(x.dtype)
        sets = rotation(weight.nbytes, self._device.cache_bytes)
        weights = [weight, *(weight.clone() for _ in range(sets - 1))]
        calls = [_linear(x, w) for w in weights]
        return Trialled("ok", tuple(samples_us(calls)))

    def race(self, request: Race) -> Raced:
        """Paired rounds of several kernels."""
        deadline = time.monotonic() + request.seconds
        sides = [self._calls(load(kernel, self._device), request.m) for kernel in request.kernels]
        rounds = paired_us(sides, request.rounds, lambda: deadline - time.monotonic(), self._seed)
        return Raced(tuple(tuple(side) for side in rounds))

    def _verify(self, kernel: LoadedKernel, block_m: int) -> float:
        """The full size at its own m; every other m of the interval on a twin with the same tail of
        rows."""
        worst = check(self._launcher(kernel), self._case, self._problem.m, self._seed)
        low, high = self._span
        for m in sizes_to_check(self._problem.m, low, high, block_m):
            worst = max(worst, check(self._launcher(kernel), self._twin, m, self._seed + m))
        return worst

    def _launcher(self, kernel: LoadedKernel) -> Launch:
        """Launches with a fresh workspace whose end is guarded."""

        def launch(
            x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None, out: torch.Tensor
        ) -> None:
            size = self._workspace_bytes(kernel, x.shape[0], packed.n)
            workspace = torch.full((size + _WORKSPACE_GUARD,), 0xA5, dtype=torch.uint8)
            kernel.launch(x, packed, bias, out, workspace[:size], self._threads)
            if not bool((workspace[size:] == 0xA5).all()):
                raise WrongResultError(f"wrote behind its workspace at m={x.shape[0]}")

        return launch

    def _calls(self, kernel: LoadedKernel, m: int) -> list[Callable[[], object]]:
        """One callable per weight set; the workspace is shared, as in serving."""
        workspace = torch.empty(
            self._workspace_bytes(kernel, m, self._problem.n), dtype=torch.uint8
        )
        out = torch.empty((m, self._problem.n), dtype=float_type(self._problem.output_dtype))
        bias, x, threads = self._case.bias, self._rows_of_x(m), self._threads

        def call(packed: PackedWeight) -> Callable[[], object]:
            return lambda: kernel.launch(x, packed, bias, out, workspace, threads)

        return [call(packed) for packed in self._weights]

    def _rows_of_x(self, m: int) -> torch.Tensor:
        rows = self._case.rows
        return rows[torch.arange(m) % len(rows)].contiguous()

    def _workspace_bytes(self, kernel: LoadedKernel, m: int, n: int) -> int:
        return kernel.workspace_bytes(m, n, self._problem.k, self._threads)

    @property
    def _threads(self) -> int:
        return self._device.threads or 1


def _copy(packed: PackedWeight) -> PackedWeight:
    return PackedWeight(
        packed.format,
        packed.n,
        packed.k,
        packed.layout,
        packed.codes.clone(),
        packed.scales.clone(),
        packed.scale_dtype,
    )


def _linear(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.nn.functional.linear(x, weight)


def answer(request: Request, bench: Bench | None, device: Device) -> Answer:
    """The answer to every request but Open. Raises HummingError where no problem is open."""
    if isinstance(request, ReadLimit):
        return Rate(read_bandwidth(device, device.threads or 1))
    if bench is None:
        raise HummingError(f"{type(request).__name__} needs an open problem; send Open first")
    if isinstance(request, Trial):
        return bench.trial(request)
    if isinstance(request, Baseline):
        return bench.baseline()
    assert isinstance(request, Race)
    return bench.race(request)


def serve(pipe: Connection) -> None:
    """Answer requests until the other side is gone."""
    device: Device = pipe.recv()
    torch.set_num_threads(device.threads or 1)
    pipe.send(Done())
    bench: Bench | None = None
    while True:
        request: Request = pipe.recv()
        try:
            if isinstance(request, Open):
                bench = None  # two problems' tensors at once might not fit
                bench = Bench(request, device)
                pipe.send(Done())
            else:
                with torch.inference_mode():
                    pipe.send(answer(request, bench, device))
        except HummingError as error:
            pipe.send(error)


def main() -> None:
    """Entry point of `python -m tuner.worker FD`: dies with its parent, ignores the terminal's
    Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(Connection(int(sys.argv[1])))


if __name__ == "__main__":
    main()
