"""Kernels under test: configs of every code path of this CPU, and a launch between canaries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.jit.load import TORCH_DTYPES, LoadedKernel, load
from humming.quantize import PackedWeight, QuantizedTensor, pack, quantize
from humming.quantize.drawn import drawn
from humming.reference import error_bound, matmul_float64
from humming.spec.config import CpuConfig
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.legality import takes
from humming.spec.problem import Problem

MOST_ROWS = 17


@dataclass(frozen=True, eq=False)
class Case:
    """Operands of MOST_ROWS rows with their float64 answer; a test uses the first m rows."""

    x: torch.Tensor
    q: QuantizedTensor
    packed: PackedWeight
    bias: torch.Tensor
    answer: torch.Tensor
    bound: torch.Tensor


@lru_cache(maxsize=3)
def weight(
    n: int, k: int, format: str = "int4g128", act_order: bool = False
) -> tuple[QuantizedTensor, PackedWeight]:
    generator = torch.Generator().manual_seed(n * 10007 + k)
    if format == "int4g128" and not act_order:
        q = quantize(torch.randn(n, k, generator=generator))
    else:
        q = drawn(format, n, k, generator, act_order=act_order)
    return q, pack(q)


@lru_cache(maxsize=40)
def case(n: int, k: int, dtype: str, format: str = "int4g128", act_order: bool = False) -> Case:
    generator = torch.Generator().manual_seed(n + k)
    q, packed = weight(n, k, format, act_order)
    # Rows of x are strided, as a slice of a larger tensor is; what lies beyond k must not count.
    x = torch.randn(MOST_ROWS, k + 8, generator=generator).to(TORCH_DTYPES[dtype])
    x[:, k:] = float("nan")
    x = x[:, :k]
    bias = torch.randn(n, generator=generator)
    answer = matmul_float64(x, q, bias)
    return Case(x, q, packed, bias, answer, error_bound(x, q, TORCH_DTYPES[dtype], bias))


def problem_of(
    activation: str, output: str | None = None, format: str = "int4g128", act_order: bool = False
) -> Problem:
    return Problem(format, 16, 128, 1, activation, output or activation, act_order=act_order)


def kernel(
    config: CpuConfig,
    activation: str,
    output: str | None = None,
    format: str = "int4g128",
    act_order: bool = False,
) -> LoadedKernel:
    device = cpu_device()
    problem = problem_of(activation, output, format, act_order)
    return load(compiled(config, problem, device), device)


def launch(
    kernel: LoadedKernel,
    x: torch.Tensor,
    packed: PackedWeight,
    bias: torch.Tensor | None = None,
    threads: int = 1,
) -> torch.Tensor:
    """out [m, n], written between canaries, with a poisoned output and a poisoned workspace."""
    m, n = x.shape[0], packed.n
    out_dtype = TORCH_DTYPES[kernel.compiled.source.static["output_dtype"]]
    canvas = torch.full((m + 2, n + 9), float("nan"), dtype=out_dtype)
    out = canvas[1 : m + 1, 5 : n + 5]
    needed = kernel.workspace_bytes(m, n, packed.k, threads)
    room = torch.full((needed + 64,), 0xFF, dtype=torch.uint8)
    kernel.launch(x, packed, bias, out, room[:needed], threads)
    result = out.clone()
    out.fill_(float("nan"))
    assert bool(canvas.isnan().all()), "the kernel wrote outside its output"
    assert bool((room[needed:] == 0xFF).all()), "the kernel wrote outside its workspace"
    return result


def code_paths(activation: str = "bf16", format: str = "int4g128") -> list[str]:
    """Those of this CPU that take `activation` and `format`, narrowest first."""
    device, problem = cpu_device(), problem_of(activation, format=format)
    return [path for path in CODE_PATH_FLAGS if device.supports(path) and takes(path, problem)]


def typed_code_paths(*activations: str) -> list[tuple[str, str]]:
    """(code path, activation type) of all that run here."""
    return [(path, dtype) for dtype in activations for path in code_paths(dtype)]


def configs_of(code_path: str) -> dict[str, CpuConfig]:
    """A config of every shape of the code: unrolled or not, prefetching, split, blocked."""
    wide = code_path.startswith("avx512")
    return {
        "stream": CpuConfig("stream", code_path, 1, 32, 128, 2, 1024, 1),
        "stream-rows": CpuConfig("stream", code_path, 4 if wide else 3, 32, 128, 1, 0, 1),
        "stream-split": CpuConfig("stream", code_path, 2, 16, 128, 2, 512, 3),
        "blocked": CpuConfig("blocked", code_path, 7 if wide else 3, 32, 256, 1, 0, 1),
    }
