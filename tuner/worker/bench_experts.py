"""The tensors of an open problem of experts, and the verifying and timing that is done with them
inside the worker. Dense problems are bench.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from humming.moe.rows import Rows
from humming.quantize.experts import PackedExperts
from humming.spec.device import Device
from tuner.measuring.conditions import monitor_for
from tuner.measuring.policy import policy_of
from tuner.worker.bench import Bench, Operands, sample_of, torch_device
from tuner.worker.messages import Open, Trialled
from tuner.worker.placing import Places
from tuner.worker.verify import DISTINCT_ROWS, sizes_to_check
from tuner.worker.verify_experts import ExpertsCase, LaunchExperts, check_experts, make_experts_case
from tuner.worker.weight_sets import WeightSets

DRAWS = 12
"""Routings that a walk goes through, each drawn without balance."""
_MOST_CHECKED_ROWS = 1 << 15  # of outputs beyond the problem's own m


class ExpertsBench(Bench):
    """As Bench, of packed experts: each call has a routing of its own, drawn as the problem says;
    sorting rows is no part of a time, as a layer does it once for both projections."""

    def __init__(
        self, request: Open, device: Device, step: Callable[[str], None] = lambda what: None
    ) -> None:
        problem = request.problem
        self._problem, self._device, self._step = problem, device, step
        self._policy = policy_of(device.kind)
        self._span = (request.m_low, request.m_high)
        self._where = torch_device(device)
        self._seed = time.time_ns() % 2**31
        self._experts: ExpertsCase = make_experts_case(problem, self._seed, self._where)
        self._monitor = monitor_for(device)
        self._sample = sample_of(device)
        self._drawn: dict[int, list[Rows]] = {}
        self._places = Places(self._where, self._seed)
        self._sets: Any = WeightSets(
            _copied(self._experts.packed), device.cache_bytes, self._policy
        )

    def baseline(self) -> Trialled:
        """torch's grouped product on 16-bit weights where it has one, as it has on GPUs; else its
        linear (fp32 too), one call for each expert that is met."""
        x, ids = self._rows_of_x(self._problem.m), self._experts.ids(self._problem.m, self._seed)
        weights = [q.dequantize(x.dtype) for q in self._experts.quantized]
        call = _grouped(x, weights, ids, self._problem.experts or 1)
        if call is None:
            call = _one_by_one(x, weights, ids)
        samples, beside = self._samples(lambda: self._sample([call]))
        return Trialled("ok", samples, conditions=beside)

    def _verify(self, kernel: Any, block_m: int) -> float:
        launch, m = self._experts_launcher(kernel), self._problem.m
        low, high = self._span
        top_k = self._problem.top_k or 1
        most = max(m, _MOST_CHECKED_ROWS // top_k)
        worst = 0.0
        for size in [m, *sizes_to_check(m, low, min(high, most), block_m)]:
            self._step(f"verifying m={size}")
            worst = max(worst, check_experts(launch, self._experts, size, self._seed + size))
        return worst

    def _experts_launcher(self, kernel: Any) -> LaunchExperts:
        def launch(
            x: torch.Tensor,
            packed: PackedExperts,
            bias: torch.Tensor | None,
            out: torch.Tensor,
            rows: Rows,
        ) -> None:
            if rows.count:
                room = self._room(kernel, rows)
                kernel.launch_experts(x, packed, bias, out, rows, room, self._threads)

        return launch

    def _calls(self, kernel: Any, m: int) -> list[Callable[[], object]]:
        """One callable for each weight set and routing; operands at places as Bench has them."""
        case, top_k, threads = self._experts, self._problem.top_k or 1, self._threads
        rows_of_x, draws = self._rows_of_x(m), self._draws(m)
        shape, places = (m * top_k, self._problem.n), self._places

        def operands() -> Operands:
            out = places.empty(shape, rows_of_x.dtype)
            return places.copy(rows_of_x), out, self._room(kernel, draws[0])

        def call(packed: PackedExperts, rows: Rows, to: Operands) -> Callable[[], object]:
            x, out, room = to
            return lambda: kernel.launch_experts(x, packed, case.bias, out, rows, room, threads)

        around, sets = self._around(operands), places.order(self._sets.sets)
        return [
            call(sets[i % len(sets)], draws[i % DRAWS], around[i % len(around)])
            for i in range(max(len(sets), DRAWS))
        ]

    def _draws(self, m: int) -> list[Rows]:
        """Routings of m tokens, the same ones for all sides and rounds."""
        if m not in self._drawn:
            ids = [self._experts.ids(m, self._seed + draw) for draw in range(DRAWS)]
            self._drawn = {m: [Rows.indexed(of_draw) for of_draw in ids]}
        return self._drawn[m]

    def _room(self, kernel: Any, rows: Rows) -> torch.Tensor:
        p = self._problem
        if self._where.type == "cpu":
            size = kernel.workspace_bytes(rows.count, p.n, p.k, self._threads, p.experts or 1)
        else:
            size = kernel.experts_workspace_bytes(rows, self._experts.packed)
        return torch.empty(size, dtype=torch.uint8, device=self._where)

    def _rows_of_x(self, m: int) -> torch.Tensor:
        rows = self._experts.rows
        return rows[torch.arange(m, device=rows.device) % DISTINCT_ROWS].contiguous()


def _grouped(
    x: torch.Tensor, weights: list[torch.Tensor], ids: torch.Tensor, experts: int
) -> Callable[[], object] | None:
    """One launch for all experts, on sorted rows; None where torch has none for these, or memory
    does not hold all weights in 16 bits."""
    multiply: Any = getattr(torch, "_grouped_mm", None)
    if not x.is_cuda or x.dtype != torch.bfloat16 or multiply is None:
        return None
    flat, order = ids.flatten().long().sort(stable=True)
    ends = torch.bincount(flat, minlength=experts).cumsum(0).to(torch.int32)
    rows = x[order // ids.shape[1]]
    try:
        kinds = torch.arange(experts, device=x.device) % len(weights)
        every = torch.stack(weights).index_select(0, kinds).transpose(1, 2)
        multiply(rows, every, offs=ends)
        torch.cuda.synchronize()
    except RuntimeError:
        return None
    return lambda: multiply(rows, every, offs=ends)


def _one_by_one(
    x: torch.Tensor, weights: list[torch.Tensor], ids: torch.Tensor
) -> Callable[[], object]:
    flat, top_k = ids.flatten().long(), ids.shape[1]
    met = [(e, (flat == e).nonzero().flatten() // top_k) for e in sorted(set(flat.tolist()))]

    def call() -> None:
        for expert, rows in met:
            torch.nn.functional.linear(x[rows], weights[expert % len(weights)])

    return call


def _copied(packed: PackedExperts) -> Any:
    """Packed experts are copied as a packed weight is."""
    return packed


def bench_for(
    request: Open, device: Device, step: Callable[[str], None] = lambda what: None
) -> Bench:
    """The bench of the problem's op."""
    kind = ExpertsBench if request.problem.op == "moe" else Bench
    return kind(request, device, step)
