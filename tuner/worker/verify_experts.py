"""Verification of kernels for the experts of a mixture: right numbers in every row, for whatever
falls on which expert, and nothing else written. Dense kernels are verify.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from humming.moe.routing import draw_ids
from humming.moe.rows import Rows
from humming.quantize.experts import PackedExperts, pack_experts
from humming.quantize.tensor import QuantizedTensor
from humming.spec.problem import Problem
from tuner.worker.verify import (
    DISTINCT_ROWS,
    Case,
    WrongResultError,
    answers,
    float_type,
    make_case,
)

DISTINCT_EXPERTS = 3
"""Different weights, which all experts share in turn: a wrong expert is seen, and memory suffices
for hundreds."""
_GUARD = 256
_MOST_COMPARED = 1 << 24  # outputs in float64 at a time

LaunchExperts = Callable[
    [torch.Tensor, PackedExperts, torch.Tensor | None, torch.Tensor, Rows], None
]
"""(x, packed experts, bias[experts, n] or None, out[rows, n], rows) -> None"""


@dataclass(frozen=True)
class ExpertsCase:
    """Experts of which every third is alike, and float64 answers [3, DISTINCT_ROWS, n]."""

    problem: Problem
    quantized: tuple[QuantizedTensor, ...]
    packed: PackedExperts
    bias: torch.Tensor | None
    rows: torch.Tensor
    expected: torch.Tensor
    bound: torch.Tensor

    def ids(self, m: int, seed: int) -> torch.Tensor:
        """What falls on experts, by the problem's routing."""
        draw = torch.Generator(self.rows.device).manual_seed(seed)
        p = self.problem
        return draw_ids(p.routing or "", m, p.experts or 1, p.top_k or 1, draw)


def make_experts_case(problem: Problem, seed: int, device: torch.device) -> ExpertsCase:
    """A random case of `problem` on `device`."""
    dense = replace(problem, op="dense", experts=None, top_k=None, routing=None)
    cases = [make_case(dense, dense.n, seed + i, device) for i in range(DISTINCT_EXPERTS)]
    first = cases[0]
    found = [answers(first.rows, of.quantized, of.bias, dense) for of in cases]
    experts = problem.experts or 1
    weights = [cases[i % DISTINCT_EXPERTS].quantized for i in range(min(experts, DISTINCT_EXPERTS))]
    dtype = float_type(problem.activation_dtype)
    few = pack_experts(weights, problem.layout, dtype)
    return ExpertsCase(
        problem,
        tuple(of.quantized for of in cases),
        _repeated(few, experts),
        None if first.bias is None else _biases(cases, experts),
        first.rows,
        torch.stack([expected for expected, _ in found]),
        torch.stack([bound for _, bound in found]),
    )


def _repeated(few: PackedExperts, experts: int) -> PackedExperts:
    order = torch.arange(experts, device=few.codes.device) % few.experts
    parts = {}
    for name, tensor in few.tensors.items():
        raw = tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor
        parts[name] = raw.index_select(0, order).view(tensor.dtype)
    return replace(few.with_tensors(parts), experts=experts)


def _biases(cases: list[Case], experts: int) -> torch.Tensor:
    rows = [cases[i % DISTINCT_EXPERTS].bias for i in range(experts)]
    return torch.stack([row for row in rows if row is not None]).to(torch.float32)


def check_experts(launch: LaunchExperts, case: ExpertsCase, m: int, seed: int) -> float:
    """Largest |error| in units of its bound over all rows. Raises WrongResultError."""
    ids = case.ids(m, seed)
    top_k = ids.shape[1]
    draw = torch.Generator().manual_seed(seed)
    own = (torch.randperm(max(m, 1), generator=draw)[:m] % DISTINCT_ROWS).to(ids.device)
    x = case.rows[own].contiguous()
    first, again = _run(launch, case, x, ids), _run(launch, case, x, ids)
    if not torch.equal(first.view(torch.uint8), again.view(torch.uint8)):
        raise WrongResultError(f"two runs differ at m={m}")
    if m == 0:
        return 0.0
    kinds, lines = (ids.long() % DISTINCT_EXPERTS).flatten(), own.repeat_interleave(top_k)
    step, worst = max(1, _MOST_COMPARED // first.shape[1]), 0.0
    for part in range(0, len(first), step):
        kind, line = kinds[part : part + step], lines[part : part + step]
        error = (first[part : part + step].double() - case.expected[kind, line]).abs()
        units = (error / case.bound[kind, line]).nan_to_num(nan=float("inf"))
        worst = max(worst, float(units.max()))
        if worst > 1.0:
            row, column = divmod(int(units.argmax()), units.shape[1])
            raise WrongResultError(
                f"m={m}: row {part + row} (expert {int(ids.flatten()[part + row])}), column "
                f"{column} is off by {worst:.3g} x its bound"
            )
    return worst


def _run(
    launch: LaunchExperts, case: ExpertsCase, x: torch.Tensor, ids: torch.Tensor
) -> torch.Tensor:
    """`out[rows, n]` of one launch into a poisoned buffer between canaries."""
    rows, n = Rows.indexed(ids), case.packed.n
    size = rows.count * n
    buffer = torch.full((size + 2 * _GUARD,), float("nan"), dtype=x.dtype, device=x.device)
    before = buffer[: 2 * _GUARD].clone()
    out = buffer[_GUARD : _GUARD + size].view(rows.count, n)
    launch(x, case.packed, case.bias, out, rows)
    sides = torch.cat([buffer[:_GUARD], buffer[_GUARD + size :]])
    if not torch.equal(sides.view(torch.uint8), before.view(torch.uint8)):
        raise WrongResultError(f"wrote outside its output at m={x.shape[0]}")
    return out.clone()
