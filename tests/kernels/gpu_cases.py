"""CUDA kernels under test on a GPU: operands with their answers, and a launch between canaries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from cuda_cases import PLAIN, problem

from humming.jit.cache import compiled
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.detect import cuda_devices
from humming.jit.load import TORCH_DTYPES, load
from humming.quantize import PackedWeight, QuantizedTensor, pack
from humming.spec.config import DequantizeConfig, KernelConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations

MOST_ROWS = 72


@dataclass(frozen=True, eq=False)
class Case:
    """Operands of MOST_ROWS rows and their float64 answer; a test uses the first m rows.

    `x` has rows aligned to 16 bytes, `odd_x` the same numbers at odd places; both are strided.
    """

    x: torch.Tensor
    odd_x: torch.Tensor
    packed: PackedWeight
    w: torch.Tensor
    bias: torch.Tensor
    product: torch.Tensor

    def answer(self, m: int, bias: bool) -> torch.Tensor:
        return self.product[:m] + (self.bias.double() if bias else 0)

    def error_of_torch(self, m: int, bias: bool) -> float:
        ours = self.bias.to(self.w.dtype) if bias else None
        out = torch.nn.functional.linear(self.x[:m].contiguous(), self.w, ours)
        return relative_error(out, self.answer(m, bias))


@lru_cache(maxsize=1)
def device() -> Device:
    return cuda_devices()[0]


@lru_cache(maxsize=64)
def case(n: int, k: int, dtype: str) -> Case:
    of = TORCH_DTYPES[dtype]
    generator = torch.Generator(device="cuda").manual_seed(n * 10007 + k)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator).to(of)

    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8, device="cuda", generator=generator)
    scales = torch.rand(n, -(-k // 128), device="cuda", generator=generator) * 0.02 + 0.002
    q = QuantizedTensor("int4g128", codes, scales.to(of))
    x = normal(MOST_ROWS, k + 16)[:, 8 : 8 + k]
    odd_x = torch.zeros(MOST_ROWS, k + 7, dtype=of, device="cuda")[:, 3 : 3 + k]
    odd_x.copy_(x)
    product = x.double() @ q.dequantize().T
    return Case(
        x,
        odd_x,
        pack(q, CUDA_LAYOUT),
        q.dequantize(of),
        normal(n).float(),  # fp32, but of values that x's type holds
        product,
    )


@lru_cache(maxsize=512)
def kernel(config: KernelConfig, dtype: str) -> CudaKernel:
    loaded = load(compiled(config, problem(dtype), device()), device())
    assert isinstance(loaded, CudaKernel)
    return loaded


def compile_all(pairs: list[tuple[KernelConfig, str]]) -> None:
    """Fills the cache in parallel, so that tests need not wait for one compiler at a time."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda pair: compiled(pair[0], problem(pair[1]), device()), pairs))


def launch(
    kernel: CudaKernel, x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """out [m, n], written between canaries into a strided output; the workspace is poisoned."""
    m, n = x.shape[0], packed.n
    canvas = torch.full((m + 2, n + 9), float("nan"), dtype=x.dtype, device="cuda")
    out = canvas[1 : m + 1, 5 : n + 5]
    needed = kernel.workspace_bytes(m, n, packed.k)
    room = torch.full((needed + 64,), 0xFF, dtype=torch.uint8, device="cuda")
    kernel.launch(x, packed, bias, out, room[:needed])
    result = out.clone()
    out.fill_(float("nan"))
    assert bool(canvas.isnan().all()), "the kernel wrote outside its output"
    assert bool((room[needed:] == 0xFF).all()), "the kernel wrote outside its workspace"
    return result


def relative_error(out: torch.Tensor, answer: torch.Tensor) -> float:
    return float((out.double() - answer).norm() / answer.norm())


KNOBS = (
    "block_m",
    "tiles_n",
    "warps",
    "split_k",
    "num_stages",
    "stage_tiles",
    "x_stages",
    "blocks_per_sm",
    "exact_codes",
)
MMA = (
    (1, 4, 8, 1, 8, 1, 2, 1, 0),
    (1, 3, 16, 2, 8, 1, 2, 1, 0),
    (1, 14, 8, 1, 3, 7, 2, 1, 0),
    (1, 4, 8, 1, 0, 1, 2, 1, 0),
    (1, 4, 16, 1, 2, 2, 2, 1, 0),
    (8, 4, 8, 1, 3, 4, 2, 1, 0),
    (8, 8, 8, 2, 4, 2, 2, 1, 0),
    (8, 5, 4, 4, 3, 1, 1, 1, 1),
    (8, 4, 8, 8, 8, 1, 2, 1, 0),
    (8, 2, 16, 4, 0, 1, 2, 1, 0),
    (8, 9, 4, 4, 0, 1, 2, 2, 0),
    (16, 8, 8, 2, 8, 1, 2, 1, 0),
    (16, 3, 8, 1, 4, 1, 3, 1, 0),
    (24, 4, 8, 2, 0, 1, 2, 1, 0),
    (32, 4, 8, 1, 4, 1, 2, 1, 0),
    (32, 6, 8, 2, 4, 1, 1, 1, 0),
    (32, 4, 4, 4, 0, 1, 2, 1, 1),
    (32, 1, 1, 1, 0, 1, 2, 1, 0),
)
WARPGROUP = (
    (32, 2, 8, 2, 4, 1, 2, 1, 0),
    (16, 4, 8, 4, 4, 2, 2, 1, 0),
    (8, 7, 8, 2, 4, 1, 3, 1, 0),
    (24, 3, 4, 1, 3, 3, 2, 1, 0),
    (1, 2, 12, 3, 2, 2, 2, 1, 0),
    (32, 1, 4, 8, 2, 1, 2, 2, 0),
)


def skinny_configs() -> list[SkinnyConfig]:
    """Configs of every shape of the code, those that this GPU runs."""
    configs = [replace(PLAIN, **dict(zip(KNOBS, knobs, strict=True))) for knobs in MMA]
    for knobs in WARPGROUP:
        configs.append(replace(PLAIN, **dict(zip(KNOBS, knobs, strict=True)), warpgroup=1))
    if (device().compute_capability or (0, 0)) >= (9, 0):
        configs = [replace(c, dependent_launch=int(i % 5 != 4)) for i, c in enumerate(configs)]
    return [c for c in configs if not config_violations(c, problem("fp16"), device())]


def dequantize_configs() -> list[DequantizeConfig]:
    return [
        DequantizeConfig(8, 2, 0),
        DequantizeConfig(4, 1, 0),
        DequantizeConfig(16, 4, 512),
        DequantizeConfig(3, 5, 16),
    ]


def dtypes() -> list[str]:
    """Activation types that this GPU takes."""
    return ["bf16", "fp16"] if (device().compute_capability or (0, 0)) >= (8, 0) else ["fp16"]
