"""CUDA kernels under test on a GPU: operands with their answers, and a launch between canaries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from cuda_cases import PLAIN, problem
from format_cases import random_weight

from humming.jit.cache import compiled
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.detect import cuda_devices
from humming.jit.load import TORCH_DTYPES, load
from humming.quantize import PackedWeight, QuantizedTensor, pack
from humming.spec.config import DequantizeConfig, KernelConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem

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

    def of_torch(self, m: int, bias: bool) -> torch.Tensor:
        """What torch's matmul on the dequantized weights gives."""
        ours = self.bias.to(self.w.dtype) if bias else None
        return torch.nn.functional.linear(self.x[:m].contiguous(), self.w, ours)


class Errors:
    """Squared errors of a kernel and of torch, pooled over as many outputs as a verdict takes.

    A thousand roundings have a root mean square within some percent of any other thousand's: the
    ratio of a few outputs says nothing, that of a pool is held to 1.1.
    """

    def __init__(self) -> None:
        self.ours = self.theirs = self.size = 0.0
        self.outputs = 0

    def add(self, out: torch.Tensor, operands: Case, m: int, bias: bool) -> None:
        answer = operands.answer(m, bias)
        self.ours += float((out.double() - answer).square().sum())
        self.theirs += float((operands.of_torch(m, bias).double() - answer).square().sum())
        self.size += float(answer.square().sum())
        self.outputs += out.numel()

    def check(self, what: str) -> None:
        assert self.outputs >= 256, f"{what}: too few outputs to compare"
        ours, theirs = (self.ours / self.size) ** 0.5, (self.theirs / self.size) ** 0.5
        assert ours <= 1.1 * theirs + 1e-6, f"{what}: {ours:.2e}, torch {theirs:.2e}"


@lru_cache(maxsize=1)
def device() -> Device:
    return cuda_devices()[0]


@lru_cache(maxsize=64)
def case(n: int, k: int, dtype: str, seed: int = 0) -> Case:
    generator = torch.Generator(device="cuda").manual_seed(n * 10007 + k + seed * 1000003)
    return case_of(random_weight("int4g128", n, k, dtype, generator), dtype, generator)


def case_of(q: QuantizedTensor, dtype: str, generator: torch.Generator) -> Case:
    """Operands for the weight `q`."""
    of, (n, k) = TORCH_DTYPES[dtype], q.shape

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator).to(of)

    x = normal(MOST_ROWS, k + 16)[:, 8 : 8 + k]
    odd_x = torch.zeros(MOST_ROWS, k + 7, dtype=of, device="cuda")[:, 3 : 3 + k]
    odd_x.copy_(x)
    product = x.double() @ q.dequantize().T
    return Case(
        x,
        odd_x,
        pack(q, CUDA_LAYOUT, of),
        q.dequantize(of),
        normal(n).float(),  # fp32, but of values that x's type holds
        product,
    )


@lru_cache(maxsize=512)
def kernel(config: KernelConfig, dtype: str) -> CudaKernel:
    return kernel_for(config, problem(dtype))


def kernel_for(config: KernelConfig, asked: Problem) -> CudaKernel:
    """`config` compiled for `asked`'s format and dtypes, loaded."""
    loaded = load(compiled(config, asked, device()), device())
    assert isinstance(loaded, CudaKernel)
    return loaded


def compile_all(pairs: list[tuple[KernelConfig, str]]) -> None:
    """Fills the cache in parallel, so that tests need not wait for one compiler at a time."""
    compile_problems([(config, problem(dtype)) for config, dtype in pairs])


def compile_problems(asked: list[tuple[KernelConfig, Problem]]) -> None:
    """The same for problems of any format."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda pair: compiled(*pair, device()), asked))


def launch(
    kernel: CudaKernel, x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """out [m, n], written between canaries into a strided output; the workspace is poisoned."""
    result, inside = launch_unseen(kernel, x, packed, bias)
    assert bool(inside), "the kernel wrote outside its output or its workspace"
    return result


def launch_unseen(
    kernel: CudaKernel, x: torch.Tensor, packed: PackedWeight, bias: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, and whether it wrote to nothing else: on the GPU, which nobody waits for."""
    m, n = x.shape[0], packed.n
    canvas = torch.full((m + 2, n + 9), float("nan"), dtype=x.dtype, device="cuda")
    out = canvas[1 : m + 1, 5 : n + 5]
    needed = kernel.workspace_bytes(m, n, packed.k)
    room = torch.full((needed + 64,), 0xFF, dtype=torch.uint8, device="cuda")
    kernel.launch(x, packed, bias, out, room[:needed])
    result = out.clone()
    out.fill_(float("nan"))
    return result, canvas.isnan().all() & (room[needed:] == 0xFF).all()


class Verdicts:
    """What is asked of many launches, answered on the GPU and waited for once."""

    def __init__(self) -> None:
        self._asked: list[tuple[str, torch.Tensor]] = []

    def ask(self, what: str, holds: torch.Tensor) -> None:
        self._asked.append((what, holds))

    def check(self) -> None:
        told = torch.stack([holds for _, holds in self._asked]).tolist()
        wrong = [what for (what, _), holds in zip(self._asked, told, strict=True) if not holds]
        assert not wrong, f"{len(wrong)} of {len(told)}: {'; '.join(wrong[:5])}"


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
