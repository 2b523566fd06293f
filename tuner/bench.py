"""The tensors of the open problem, and the verifying and timing that is done with them inside the
worker. The process itself is worker.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from humming.errors import KernelLoadError, LaunchError, UsageError
from humming.jit.load import load
from humming.plan import Kernel
from humming.quantize.layout import PackedWeight
from humming.spec.device import Device
from tuner.conditions import Conditions, clean_rounds, monitor_for
from tuner.measure import paired_us, rotation, samples_us
from tuner.measure_cpu import cpu_sample
from tuner.measure_cuda import cuda_sample
from tuner.messages import Open, Race, Raced, Trial, Trialled
from tuner.promote import MIN_ROUNDS, undecided
from tuner.verify import (
    Launch,
    WrongResultError,
    check,
    float_type,
    make_case,
    sizes_to_check,
    twin_rows,
)

_WORKSPACE_GUARD = 256


class Bench:
    """The tensors of the open problem and what is done with them."""

    def __init__(self, request: Open, device: Device) -> None:
        problem = request.problem
        self._problem, self._device = problem, device
        self._span = (request.m_low, request.m_high)
        self._where = torch_device(device)
        # Fresh data each time: a kernel that is right on one draw only must not pass twice.
        self._seed = time.time_ns() % 2**31
        self._case = make_case(problem, problem.n, self._seed, self._where)
        twin = twin_rows(problem.n)
        self._twin = (
            self._case
            if twin == problem.n
            else make_case(problem, twin, self._seed + 1, self._where)
        )
        self._monitor = monitor_for(device)
        self._sample = cpu_sample if device.kind == "cpu" else cuda_sample
        sets = rotation(self._case.packed.nbytes, device.cache_bytes)
        self._weights = [self._case.packed, *(_copy(self._case.packed) for _ in range(sets - 1))]

    def trial(self, request: Trial) -> Trialled:
        """Verify, then time."""
        try:
            kernel = load(request.kernel, self._device)
            worst = self._verify(kernel, request.block_m)
            samples, beside = self._samples(self._calls(kernel, self._problem.m), request.best_us)
        except WrongResultError as error:
            return Trialled("wrong_result", detail=str(error))
        except (KernelLoadError, LaunchError) as error:
            return Trialled("launch_error", detail=str(error))
        return Trialled("ok", samples, worst, conditions=beside)

    def baseline(self) -> Trialled:
        """torch.nn.functional.linear on 16-bit (or fp32) weights of the same shape, cold as
        well."""
        x = self._rows_of_x(self._problem.m)
        weight = self._case.quantized.dequantize(x.dtype)
        sets = rotation(weight.nbytes, self._device.cache_bytes)
        weights = [weight, *(weight.clone() for _ in range(sets - 1))]
        calls = [_linear(x, w) for w in weights]
        samples, beside = self._samples(calls)
        return Trialled("ok", samples, conditions=beside)

    def _samples(
        self, calls: list[Callable[[], object]], best_us: float | None = None
    ) -> tuple[tuple[float, ...], Conditions]:
        """Samples of one side, and what stood beside them."""
        sample = self._sample(calls)
        self._monitor.begin()
        samples = samples_us(sample, best_us)
        return tuple(samples), self._monitor.end()

    def race(self, request: Race) -> Raced:
        """Paired rounds of several kernels."""
        deadline = time.monotonic() + request.seconds
        sides = [
            self._sample(self._calls(load(kernel, self._device), request.m))
            for kernel in request.kernels
        ]
        beside: list[Conditions] = []

        def note() -> None:
            beside.append(self._monitor.end())
            self._monitor.begin()

        def decided(taken: list[list[float]]) -> bool:
            clean = clean_rounds(taken, beside)
            enough = len(clean[0]) >= MIN_ROUNDS
            return request.until_decided and enough and not undecided(clean)

        self._monitor.begin()
        rounds = paired_us(
            sides,
            request.rounds,
            lambda: deadline - time.monotonic(),
            self._seed,
            decided,
            note,
        )
        return Raced(tuple(tuple(side) for side in rounds), tuple(beside))

    def _verify(self, kernel: Kernel, block_m: int) -> float:
        """The full size at its own m; every other m of the interval on a twin with the same tail of
        rows."""
        worst = check(self._launcher(kernel), self._case, self._problem.m, self._seed)
        low, high = self._span
        for m in sizes_to_check(self._problem.m, low, high, block_m):
            worst = max(worst, check(self._launcher(kernel), self._twin, m, self._seed + m))
        return worst

    def _launcher(self, kernel: Kernel) -> Launch:
        """Launches with a fresh workspace whose end is guarded."""

        def launch(
            x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None, out: torch.Tensor
        ) -> None:
            size = self._workspace_bytes(kernel, x.shape[0], packed.n)
            workspace = torch.full(
                (size + _WORKSPACE_GUARD,), 0xA5, dtype=torch.uint8, device=self._where
            )
            kernel.launch(x, packed, bias, out, workspace[:size], self._threads)
            if not bool((workspace[size:] == 0xA5).all()):
                raise WrongResultError(f"wrote behind its workspace at m={x.shape[0]}")

        return launch

    def _calls(self, kernel: Kernel, m: int) -> list[Callable[[], object]]:
        """One callable per weight set; the workspace is shared, as in serving."""
        size = self._workspace_bytes(kernel, m, self._problem.n)
        workspace = torch.empty(size, dtype=torch.uint8, device=self._where)
        dtype = float_type(self._problem.output_dtype)
        out = torch.empty((m, self._problem.n), dtype=dtype, device=self._where)
        bias, x, threads = self._case.bias, self._rows_of_x(m), self._threads

        def call(packed: PackedWeight) -> Callable[[], object]:
            return lambda: kernel.launch(x, packed, bias, out, workspace, threads)

        return [call(packed) for packed in self._weights]

    def _rows_of_x(self, m: int) -> torch.Tensor:
        rows = self._case.rows
        return rows[torch.arange(m, device=rows.device) % len(rows)].contiguous()

    def _workspace_bytes(self, kernel: Kernel, m: int, n: int) -> int:
        return kernel.workspace_bytes(m, n, self._problem.k, self._threads)

    @property
    def _threads(self) -> int:
        return self._device.threads or 1


def _copy(packed: PackedWeight) -> PackedWeight:
    return packed.with_tensors({name: tensor.clone() for name, tensor in packed.tensors.items()})


def _linear(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.nn.functional.linear(x, weight)


def torch_device(device: Device) -> torch.device:
    """torch's name for `device` in this process. Raises UsageError where the GPU is not visible
    here."""
    if device.kind == "cpu":
        return torch.device("cpu")
    for index in range(torch.cuda.device_count()):
        if device.uuid in (None, _uuid(index)):
            return torch.device("cuda", index)
    raise UsageError(
        f"GPU {device.uuid} must be visible to torch, but it sees {torch.cuda.device_count()} GPUs "
        "and not this one; check CUDA_VISIBLE_DEVICES"
    )


def _uuid(index: int) -> str:
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"
