"""Our served layer and torch's linear on one GPU, as CUDA graphs that walk over cold weights. Which
sides meet, and how often, is gemm.py."""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

import humming
from humming.dispatch.tables import TunedTable
from humming.jit.cache import compiled_source, read_library
from humming.jit.cuda.driver import LONG, POINTER, DeviceFunction, device_index
from humming.jit.cuda.source import read_probe_source
from humming.jit.nvrtc import nvrtc_arch
from humming.quantize import QuantizedTensor, quantize
from humming.quantize.activations import requantized
from humming.spec.device import Device
from humming.spec.formats import QuantFormat
from tuner.measuring.samples import rotation
from tuner.measuring.samples_cuda import cuda_sample

_ROWS_CHECKED = 256
_PROBE_THREADS, _PROBE_WAVES = 512, (1, 2, 4)


@dataclass(frozen=True)
class Sides:
    """One shape: layers of ours that hold copies of one weight, and as many bf16 weights."""

    quantized: QuantizedTensor
    layers: list[humming.HummingLinear]
    dense: list[torch.Tensor]

    def ours(self, x: torch.Tensor, table: TunedTable) -> Callable[[int], float]:
        """Takes the median of some replays of our side, served by `table`."""
        for layer in self.layers:
            layer.prepare(table=table, m=len(x), dtype=x.dtype)
        return _median_of([_call(layer, x) for layer in self.layers])

    def theirs(self, x: torch.Tensor) -> Callable[[int], float]:
        """The same of torch.nn.functional.linear."""
        return _median_of([_linear(x, weight) for weight in self.dense])

    def read_limit_us(self, device: Device) -> float:
        """The least time in which a kernel that only reads takes in the codes and scales."""
        source = read_probe_source()
        library = read_library(compiled_source(source, nvrtc_arch(source, device)).path)
        probe = DeviceFunction(library, "humming_read_probe", device_index(device))
        sink = torch.zeros(1, dtype=torch.int32, device="cuda")

        def call(layer: humming.HummingLinear, blocks: int) -> Callable[[], None]:
            held = [layer.packed_codes, layer.packed_scales]
            chunks = sum(tensor.nbytes for tensor in held) // 16
            room = torch.cat([tensor.view(torch.uint8).reshape(-1) for tensor in held])
            values = (room.data_ptr(), chunks, sink.data_ptr())
            types = (POINTER, LONG, POINTER)
            kept.append(room)
            return lambda: probe.launch((blocks, 1), _PROBE_THREADS, values, types)

        found = []
        for waves in _PROBE_WAVES:
            kept: list[torch.Tensor] = []
            blocks = (device.sm_count or 1) * waves
            sample = cuda_sample([call(layer, blocks) for layer in self.layers])
            found.append(statistics.median(sample() for _ in range(5)))
        return min(found)

    def errors(self, x: torch.Tensor) -> tuple[float, float]:
        """Relative Frobenius error of our output and of torch's, against float64 on the
        dequantized weight, and on x as it is quantized where the format does that."""
        rows = slice(0, _ROWS_CHECKED)
        whole = self.quantized.dequantize().to(x.device)
        activation = QuantFormat.parse(self.quantized.format).activation
        multiplied = requantized(x[rows], activation)
        exact = multiplied @ whole.double().T
        theirs = torch.nn.functional.linear(multiplied.to(x.dtype), self.dense[0])
        return _error(self.layers[0](x)[rows], exact), _error(theirs, exact)


def make_sides(format: str, n: int, k: int, cache_bytes: int, seed: int) -> Sides:
    """One random weight [n, k] of `format` on the current GPU, as often as keeps its cache cold."""
    draw = torch.Generator("cuda").manual_seed(seed)
    weight = torch.randn(n, k, device="cuda", generator=draw).to(torch.bfloat16)
    q = quantize(weight, format)
    first = humming.HummingLinear.from_quantized(q)
    first = first.to("cuda")
    size = first.packed_codes.nbytes + first.packed_scales.nbytes
    layers = [copy.deepcopy(first) for _ in range(rotation(size, cache_bytes))]
    rounded = q.dequantize(torch.bfloat16).to("cuda")
    dense = [rounded.clone() for _ in range(rotation(rounded.nbytes, cache_bytes))]
    return Sides(q, layers, dense)


def rows_of_x(m: int, k: int, seed: int) -> torch.Tensor:
    """Random bf16 activations [m, k] on the current GPU."""
    draw = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(m, k, device="cuda", generator=draw).to(torch.bfloat16)


def _median_of(calls: list[Callable[[], torch.Tensor]]) -> Callable[[int], float]:
    sample = cuda_sample(calls)
    return lambda replays: statistics.median(sample() for _ in range(replays))


def _call(layer: torch.nn.Module, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: layer(x)


def _linear(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: torch.nn.functional.linear(x, weight)


def _error(out: torch.Tensor, exact: torch.Tensor) -> float:
    return float(torch.linalg.norm(out.double() - exact) / torch.linalg.norm(exact))
