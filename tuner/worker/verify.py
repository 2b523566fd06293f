"""Verification: a candidate computes the right numbers over the m that it will serve, and writes
nothing else. No timing here.

Every check runs on fresh random data, into poisoned outputs between canaries, twice, against
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from humming.quantize.drawn import drawn
from humming.quantize.layout import PackedWeight, pack
from humming.quantize.tensor import QuantizedTensor
from humming.reference import error_bound, matmul_float64
from humming.spec.formats import QuantFormat
from humming.spec.problem import Problem

DISTINCT_ROWS = 32
_GUARD = 256
_ROWS_OF_W = 1024
_TWIN_ROWS = 512

_TENSOR_CORE_STEPS = 640
"""Roundings of a tensor-core kernel that are allowed at any k: it may carry codes with a bias of up
to 136 (34 times their mean size) and take that away again, group by group, and tensor cores
truncate: 2 * 8 steps a group * 34 = 544 units of 2**-24 of sum |x||w|."""

_SIGMAS = 8

Launch = Callable[[torch.Tensor, PackedWeight, torch.Tensor | None, torch.Tensor], None]
"""(x[m, k], packed weight, bias[n] or None, out[m, n]) -> None"""


class WrongResultError(Exception):
    """A candidate's numbers or its writes are wrong; the message says where. It never leaves the
    worker."""


@dataclass(frozen=True)
class Case:
    """One weight with float64 answers for DISTINCT_ROWS rows of x; any m repeats those rows in a
    shuffled order."""

    quantized: QuantizedTensor
    packed: PackedWeight
    bias: torch.Tensor | None
    rows: torch.Tensor
    expected: torch.Tensor
    bound: torch.Tensor


def make_case(problem: Problem, n: int, seed: int, device: torch.device) -> Case:
    """A random case of `problem` with n rows of w on `device`: codes over their whole range, scales
    and x over several binades."""
    draw = torch.Generator(device).manual_seed(seed)
    dtype = float_type(problem.activation_dtype)
    quantized = drawn(problem.format, n, problem.k, draw, dtype, problem.act_order)
    rows = torch.randn((DISTINCT_ROWS, problem.k), generator=draw, device=device)
    binades = torch.randint(-4, 5, (DISTINCT_ROWS, 1), generator=draw, device=device)
    rows = (rows * torch.exp2(binades)).to(dtype)
    bias = torch.randn(n, generator=draw, device=device).to(dtype) if problem.bias else None
    expected, bound = answers(rows, quantized, bias, problem)
    return Case(
        quantized,
        pack(quantized, problem.layout, dtype),
        bias,
        rows,
        expected,
        bound,
    )


def answers(
    rows: torch.Tensor, quantized: QuantizedTensor, bias: torch.Tensor | None, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor]:
    """float64 [rows, n]: what a right kernel gives, and how far it may be off."""
    cpu = rows.device.type == "cpu"
    steps = problem.k if cpu else max(problem.k, _TENSOR_CORE_STEPS)
    out_dtype, n = float_type(problem.output_dtype), quantized.shape[0]
    expected, bound = [], []
    for part in range(0, n, _ROWS_OF_W):
        q = quantized.slice_rows(part, min(part + _ROWS_OF_W, n))
        b = None if bias is None else bias[part : part + _ROWS_OF_W]
        expected.append(matmul_float64(rows, q, b))
        of_part = error_bound(rows, q, out_dtype, b, steps)
        bound.append(of_part if cpu else of_part + rounded_weights(rows, q))
    return torch.cat(expected, 1), torch.cat(bound, 1)


def rounded_weights(x: torch.Tensor, q: QuantizedTensor) -> torch.Tensor:
    """float64 [m, n]: what a product may be off where each weight, and x that was quantized, is
    first rounded to x's type, as kernels on tensor cores do.

    Roundings are as good as independent: their sum has a standard deviation of at most
    `eps / sqrt(12) * sqrt(x^2 @ w^2.T)`, and millions of sums stay within eight.
    """
    squares = x.to(torch.float64).square() @ q.dequantize().square().T
    operands = 1 if QuantFormat.parse(q.format).activation is None else 2  # x as well
    return _SIGMAS * torch.finfo(x.dtype).eps / 12**0.5 * (operands * squares).sqrt()


def twin_rows(n: int) -> int:
    """Rows of w for checking many m cheaply: the same tail as n (tiles have at most 128 rows),
    several tiles long."""
    return n if n <= _TWIN_ROWS + 128 else _TWIN_ROWS + n % 128


def sizes_to_check(m: int, m_low: int, m_high: int, block_m: int) -> list[int]:
    """Values of m in [m_low, m_high): both ends, the anchor, and one less and more than whole
    tiles."""
    wanted = {m_low, m, m_high - 1, m + 1, block_m - 1, block_m + 1, 2 * block_m + 1}
    return sorted(value for value in wanted if m_low <= value < m_high)


def check(launch: Launch, case: Case, m: int, seed: int) -> float:
    """Largest |error| in units of its bound over all m x n outputs. Raises WrongResultError."""
    draw = torch.Generator().manual_seed(seed)
    order = torch.arange(m)[torch.randperm(m, generator=draw)] % DISTINCT_ROWS
    order = order.to(case.rows.device)
    x = case.rows[order].contiguous()
    first = _run(launch, case, x)
    again = _run(launch, case, x)
    if not torch.equal(first.view(torch.uint8), again.view(torch.uint8)):
        raise WrongResultError(f"two runs differ at m={m}")
    if m == 0:
        return 0.0
    error = (first.to(torch.float64) - case.expected[order]).abs() / case.bound[order]
    worst = float(error.nan_to_num(nan=float("inf")).max())
    if worst > 1.0:
        row, column = divmod(int(error.nan_to_num(nan=float("inf")).argmax()), error.shape[1])
        raise WrongResultError(
            f"m={m}: out[{row}, {column}] is {float(first[row, column])!r}, expected "
            f"{float(case.expected[order][row, column])!r} (error {worst:.3g} x its bound)"
        )
    return worst


def check_strange(launch: Launch, case: Case, m: int, seed: int) -> None:
    """NaN and infinity stand where the reference has them, and nowhere else. Raises
    WrongResultError.

    An infinity of the reference may be a NaN: a kernel that carries codes with a bias and takes it
    away again subtracts infinities. Rows without such numbers are as without their neighbours.
    """
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randperm(DISTINCT_ROWS, generator=draw)[: min(m, DISTINCT_ROWS)]
    x = case.rows[rows.to(case.rows.device)].contiguous()
    plain = _run(launch, case, x)
    strange = x.clone()
    column = int(torch.randint(x.shape[1], (1,), generator=draw))
    last = x.shape[0] - 1
    strange[0, column] = float("nan")
    strange[last, column] = float("inf") if last else float("nan")
    out = _run(launch, case, strange)
    if last and not torch.equal(out[1:last].view(torch.uint8), plain[1:last].view(torch.uint8)):
        raise WrongResultError(f"a NaN in row 0 of x changed another row at m={x.shape[0]}")
    if not bool(out[0].isnan().all()):
        raise WrongResultError(f"a NaN in x was lost at m={x.shape[0]}, out[0]")
    weights = case.quantized.dequantize()[:, column]
    if last and bool(out[last].isfinite()[weights != 0].any()):
        raise WrongResultError(f"an infinity in x was lost at m={x.shape[0]}, out[{last}]")


def _run(launch: Launch, case: Case, x: torch.Tensor) -> torch.Tensor:
    """`out[m, n]` of one launch into a poisoned buffer between canaries."""
    m, n = x.shape[0], case.packed.n
    buffer = torch.full((m * n + 2 * _GUARD,), float("nan"), dtype=x.dtype, device=x.device)
    before = buffer.clone()
    out = buffer[_GUARD : _GUARD + m * n].view(m, n)
    launch(x, case.packed, case.bias, out)
    for side in (slice(0, _GUARD), slice(_GUARD + m * n, None)):
        if not torch.equal(buffer[side].view(torch.uint8), before[side].view(torch.uint8)):
            raise WrongResultError(f"wrote outside its output at m={m}")
    return out.clone()


def float_type(name: str) -> torch.dtype:
    """torch's type for fp32, bf16 or fp16."""
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
