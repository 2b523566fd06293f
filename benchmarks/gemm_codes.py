"""Sides of a comparison that multiply x as codes: our kernel alone, where x was quantized before,
torch's own product of fp8 with a scale a row of each, and DeepGEMM's of blocks where it is
installed. Which sides meet is gemm.py."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gemm_sides import Sides
from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.tables import TunedTable
from humming.errors import HummingError
from humming.jit.cache import compiled
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.identity import here
from humming.jit.load import load
from humming.spec.device import Device
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT, layout_for
from humming.spec.problem import Problem
from tuner.measuring.samples_cuda import cuda_sample

_FP8 = torch.float8_e4m3fn
BY_TORCH = ("fp8e4m3-fp8e4m3",)
"""Formats that torch's row-wise product multiplies."""
BY_DEEP_GEMM = ("fp8e4m3b128-fp8e4m3g128",)
"""Formats that DeepGEMM multiplies."""


def multiplies_codes(format: str, device: Device) -> bool:
    """Whether `device` multiplies the codes of x, so that quantizing it is another kernel."""
    quantized = QuantFormat.parse(format).activation is not None
    return quantized and layout_for(device, format) == CUDA_A8_LAYOUT


def alone(
    sides: Sides, x: torch.Tensor, table: TunedTable, device: Device
) -> Callable[[int], float]:
    """Takes the median of some replays of the kernel that serves `x`, on x quantized before."""
    (m, k), n = x.shape, sides.quantized.shape[0]
    kernel = _serving(sides, m, table, device)
    assert kernel.input is not None
    room = x.new_empty(kernel.input.nbytes(m, k), dtype=torch.uint8)
    made = kernel.input.enqueue(x, room)
    assert made.scales is not None
    codes, scales, out = made.codes, made.scales, x.new_empty(m, n)
    scratch = x.new_empty(kernel.scratch_bytes(m, n, k), dtype=torch.uint8)

    def call(layer: object) -> Callable[[], None]:
        packed = layer._packed()  # type: ignore[attr-defined]
        return lambda: kernel.launch_quantized(codes, scales, packed, None, out, scratch)

    return _median_of([call(layer) for layer in sides.layers])


def scaled_mm(sides: Sides, x: torch.Tensor, device: Device) -> Callable[[int], float]:
    """The same of torch._scaled_mm on our codes, sums kept in the tensor cores."""
    (m, k), n = x.shape, sides.quantized.shape[0]
    kernel = _serving(sides, m, TunedTable("heuristic", ()), device)
    assert kernel.input is not None
    room = x.new_empty(kernel.input.nbytes(m, k), dtype=torch.uint8)
    made = kernel.input.enqueue(x, room)
    assert made.scales is not None
    of_x, rows, out = made.codes.view(_FP8), made.scales[0, :m, None], x.new_empty(m, n)

    def call(layer: object) -> Callable[[], torch.Tensor]:
        packed = layer._packed()  # type: ignore[attr-defined]
        of_w = packed.codes.view(torch.uint8).view(_FP8)[:n].t()
        columns = packed.row_scales[None, :n]
        return lambda: torch._scaled_mm(
            of_x, of_w, rows, columns, out_dtype=x.dtype, use_fast_accum=True, out=out
        )

    return _median_of([call(layer) for layer in sides.layers])


def has_deep_gemm() -> bool:
    """Whether DeepGEMM can be imported."""
    return importlib.util.find_spec("deep_gemm") is not None


def deep_gemm(sides: Sides, x: torch.Tensor, device: Device) -> Callable[[int], float]:
    """The same of DeepGEMM on our codes and scales; its own choice of a kernel, which it compiles.

    Raises HummingError where it gives other numbers than the dequantized operands.
    """
    (m, k), (n, _) = x.shape, sides.quantized.shape
    kernel = _serving(sides, m, TunedTable("heuristic", ()), device)
    assert kernel.input is not None
    made = kernel.input.enqueue(x, x.new_empty(kernel.input.nbytes(m, k), dtype=torch.uint8))
    assert made.scales is not None
    of_x = (made.codes.view(_FP8)[:, :k], made.scales.t()[:m])
    scales = sides.quantized.scales.to(x.device, torch.float32)
    multiply: Any = importlib.import_module("deep_gemm").fp8_gemm_nt
    out = x.new_empty(m, n)

    def call(layer: object) -> Callable[[], None]:
        codes = layer._packed().codes.view(torch.uint8).view(_FP8)[:n, :k]  # type: ignore[attr-defined]
        return lambda: multiply(of_x, (codes, scales), out, disable_ue8m0_cast=True)

    calls: list[Callable[[], object]] = [call(layer) for layer in sides.layers]
    calls[0]()
    exact = sides.layers[0](x)
    if not torch.allclose(out.float(), exact.float(), rtol=0.05, atol=0.05 * float(exact.std())):
        raise HummingError(f"DeepGEMM and our layer differ at m={m}, n={n}, k={k}")
    return _median_of(calls)


def _serving(sides: Sides, m: int, table: TunedTable, device: Device) -> CudaKernel:
    format, (n, k) = sides.quantized.format, sides.quantized.shape
    problem = Problem(format, n, k, m, layout=layout_for(device, format))
    config = lookup(resolve(problem, here(device), table), m).config
    kernel = load(compiled(config, problem, device), device)
    assert isinstance(kernel, CudaKernel)
    return kernel


def _median_of(calls: list[Callable[[], object]]) -> Callable[[int], float]:
    sample = cuda_sample(calls)
    return lambda replays: statistics.median(sample() for _ in range(replays))
