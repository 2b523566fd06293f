"""The tensors of the open problem, and the verifying and timing that is done with them inside the
worker. The process itself is process.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch

from humming.errors import KernelLoadError, LaunchError, UsageError
from humming.jit.load import load
from humming.plan import Kernel
from humming.quantize.layout import PackedWeight
from humming.spec.canonical import plain
from humming.spec.device import Device
from tuner.measuring.conditions import Conditions, clean_rounds, lacking, monitor_for
from tuner.measuring.policy import policy_of
from tuner.measuring.samples import Dealt, Sample, paired_us, samples_us, warm_up
from tuner.measuring.samples_cpu import cpu_sample
from tuner.measuring.samples_cuda import cuda_sample
from tuner.promoting.racing import PROOF_ROUNDS, going_on
from tuner.worker.messages import Done, Open, Race, Raced, Trial, Trialled
from tuner.worker.placing import Places
from tuner.worker.verify import (
    Launch,
    WrongResultError,
    check,
    check_strange,
    float_type,
    make_case,
    sizes_to_check,
    twin_rows,
)
from tuner.worker.weight_sets import WeightSets, out_of_memory

MOST_BYTES = 64 << 20
"""Of x, workspace and output: larger ones have one place, as calls that long hang on none."""

_GUARD = 256
"""Bytes of canary on each side of a workspace."""

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""x, output and workspace of a call."""

T = TypeVar("T")


class Bench:
    """The tensors of the open problem and what is done with them. `step` is told each step before
    it begins: where a worker that hangs stands."""

    def __init__(
        self, request: Open, device: Device, step: Callable[[str], None] = lambda what: None
    ) -> None:
        problem = request.problem
        self._problem, self._device, self._step = problem, device, step
        self._policy = policy_of(device.kind)
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
        self._sample = sample_of(device)
        self._places = Places(self._where, self._seed)
        self._sets = WeightSets(self._case.packed, device.cache_bytes, self._policy)

    def opened(self) -> Done:
        """What the user should know of the tensors."""
        return Done(lacking(self._sets.record()))

    def trial(self, request: Trial) -> Trialled:
        """Verify, then time."""
        try:
            self._step("loading")
            kernel = cast(Kernel, load(request.kernel, self._device))
            worst = self._verify(kernel, request.block_m)
            samples, beside = self._with_room(
                lambda: self._samples(self._dealer(kernel, self._problem.m), request.best_us)
            )
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
        sets = max(2, -(-self._policy.cold_caches * self._device.cache_bytes // weight.nbytes))
        weights = [weight]
        try:
            weights += [weight.clone() for _ in range(min(sets, self._policy.most_sets) - 1)]
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        calls = [_linear(x, w) for w in weights]
        samples, beside = self._samples(lambda: self._sample(calls))
        return Trialled("ok", samples, conditions=beside)

    def _samples(
        self, deal: Callable[[], Sample], best_us: float | None = None
    ) -> tuple[tuple[float, ...], Conditions]:
        """Samples of one side, and what stood beside them."""
        self._step("timing")
        sample = Dealt(deal, self._policy.same_places)
        warmed = warm_up(self._told(sample.again), self._policy)
        self._monitor.begin()
        samples = samples_us(self._told(sample), self._policy, best_us)
        beside = self._monitor.end()
        return tuple(samples), {**beside, **self._record(), "warm_up": plain(warmed)}

    def _dealer(self, kernel: Kernel, m: int) -> Callable[[], Sample]:
        """Makes what is sampled, each time at other places."""
        return lambda: self._sample(self._calls(kernel, m))

    def _record(self) -> dict[str, Any]:
        return {"policy": self._policy.record(), **self._sets.record()}

    def _told(self, sample: Sample) -> Sample:
        def told() -> float:
            self._step("timing")
            return sample()

        return told

    def race(self, request: Race) -> Raced:
        """Paired rounds of several kernels."""
        try:
            return self._with_room(lambda: self._race(request))
        finally:
            if self._where.type == "cuda":
                torch.cuda.empty_cache()  # each graph that was captured had memory of its own

    def _race(self, request: Race) -> Raced:
        deadline = time.monotonic() + request.seconds
        sides = []
        for kernel in request.kernels:
            self._step("loading")
            deal = self._dealer(cast(Kernel, load(kernel, self._device)), request.m)
            sides.append(Dealt(deal, self._policy.same_places and 1))
        beside: list[Conditions] = []

        def note() -> None:
            beside.append(self._monitor.end())
            self._monitor.begin()

        def racing(taken: list[list[float]]) -> list[int]:
            proofs = len(taken[0]) % PROOF_ROUNDS == 0
            return going_on(clean_rounds(taken, beside), proofs)

        warmed = warm_up(self._told(sides[0].again), self._policy)
        self._monitor.begin()
        rounds = paired_us(
            [self._told(side) for side in sides],
            request.rounds,
            lambda: deadline - time.monotonic(),
            self._seed,
            racing if request.until_decided else None,
            note,
        )
        taken = tuple(tuple(side) for side in rounds)
        return Raced(taken, tuple(beside), {**self._record(), "warm_up": plain(warmed)})

    def _with_room(self, work: Callable[[], T]) -> T:
        """What `work` returns; where memory ends, with fewer copies of the weight. Raises
        LaunchError where even one is too many."""
        while True:
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                said = str(error)
            if not self._sets.shrink():
                raise LaunchError(f"out of memory with a single copy of the weight: {said[:200]}")

    def _verify(self, kernel: Kernel, block_m: int) -> float:
        """The full size at its own m; every other m of the interval, and numbers that are no
        numbers, on a twin with the same tail of rows."""
        launch, m = self._launcher(kernel), self._problem.m
        self._step(f"verifying m={m}")
        worst = check(launch, self._case, m, self._seed)
        low, high = self._span
        for size in sizes_to_check(m, low, high, block_m):
            self._step(f"verifying m={size}")
            worst = max(worst, check(launch, self._twin, size, self._seed + size))
        if self._problem.quant.activation is None:
            self._step("verifying NaN and infinity")
            check_strange(launch, self._twin, min(m, 2 * block_m + 1), self._seed)
        return worst

    def _launcher(self, kernel: Kernel) -> Launch:
        """Launches with a fresh workspace between guards."""

        def launch(
            x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None, out: torch.Tensor
        ) -> None:
            size = self._workspace_bytes(kernel, x.shape[0], packed.n)
            room = torch.full((size + 2 * _GUARD,), 0xA5, dtype=torch.uint8, device=self._where)
            workspace = room[_GUARD : _GUARD + size]
            kernel.launch(x, packed, bias, out, workspace, self._threads)
            for where, side in (("before", room[:_GUARD]), ("behind", room[_GUARD + size :])):
                if not bool((side == 0xA5).all()):
                    raise WrongResultError(f"wrote {where} its workspace at m={x.shape[0]}")

        return launch

    def _calls(self, kernel: Kernel, m: int) -> list[Callable[[], object]]:
        """One callable per weight set; x, workspace and output at few places, as in serving. Each
        time at other places and in another order."""
        size = self._workspace_bytes(kernel, m, self._problem.n)
        dtype = float_type(self._problem.output_dtype)
        bias, rows, threads = self._case.bias, self._rows_of_x(m), self._threads
        places = self._places

        def operands() -> Operands:
            out = places.empty((m, self._problem.n), dtype)
            return places.copy(rows), out, places.empty((size,), torch.uint8)

        def call(packed: PackedWeight, to: Operands) -> Callable[[], object]:
            x, out, workspace = to
            return lambda: kernel.launch(x, packed, bias, out, workspace, threads)

        around, sets = self._around(operands), places.order(self._sets.sets)
        walk = max(len(sets), len(around))
        return [call(sets[i % len(sets)], around[i % len(around)]) for i in range(walk)]

    def _around(self, operands: Callable[[], Operands]) -> list[Operands]:
        """Operands at as many places as the policy says; at one where they are large."""
        first = operands()
        large = sum(tensor.nbytes for tensor in first) > MOST_BYTES
        return [first, *(operands() for _ in range(0 if large else self._policy.places - 1))]

    def _rows_of_x(self, m: int) -> torch.Tensor:
        rows = self._case.rows
        return rows[torch.arange(m, device=rows.device) % len(rows)].contiguous()

    def _workspace_bytes(self, kernel: Kernel, m: int, n: int) -> int:
        return kernel.workspace_bytes(m, n, self._problem.k, self._threads)

    @property
    def _threads(self) -> int:
        return self._device.threads or 1


def _linear(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], object]:
    return lambda: torch.nn.functional.linear(x, weight)


def sample_of(device: Device) -> Callable[[Sequence[Callable[[], object]]], Sample]:
    """What samples calls of one kernel on the device's kind."""
    return cpu_sample if device.kind == "cpu" else partial(cuda_sample, alike=True)


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
