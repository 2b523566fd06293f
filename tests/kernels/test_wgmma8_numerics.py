"""The families wgmma8 and scaled_mm give the right numbers on quantized x, bitwise equal, and leave
counters at zero."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from format_cases import random_weight
from gpu_cases import (
    Verdicts,
    compile_problems,
    device,
    dtypes,
    kernel_for,
    launch,
    launch_unseen,
)
from wgmma8_cases import FORMATS, HOPPER, PLAIN_WGMMA8, byte_problem, wgmma8_configs

from humming.jit.cuda import counters
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.load import TORCH_DTYPES
from humming.quantize import pack
from humming.quantize.activations import quantize_activations
from humming.reference import error_bound, matmul_float64
from humming.spec.config import KernelConfig, ScaledMmConfig, Wgmma8Config
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT

pytestmark = pytest.mark.gpu

SHAPES = [(1, 24, 8), (70, 648, 520), (300, 1000, 1000), (513, 4104, 1160), (33, 8200, 4096)]
_FP8_SUMS = 2.0**-13
"""What tensor cores cut off fp8 sums that stay in them at each k32 step, of the sum."""


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    if device().compute_capability != HOPPER:
        pytest.fail("the family wgmma8 needs compute capability 9.0; deselect its tests here")
    compile_problems(
        [(config, byte_problem(format)) for format in FORMATS for config in _some(format)]
    )


def _some(format: str) -> list[Wgmma8Config]:
    """A third of the configs, another one for each format, and the largest tile."""
    configs = wgmma8_configs(format)
    return list(dict.fromkeys([configs[0], *configs[FORMATS.index(format) % 3 :: 3]]))


@lru_cache(maxsize=16)
def _operands(m, n, k, format, dtype="bf16"):
    of = TORCH_DTYPES[dtype]
    generator = torch.Generator(device="cuda").manual_seed(m * 7919 + n * 31 + k)
    q = random_weight(format, n, k, dtype, generator)
    x = torch.randn(m, k + 16, device="cuda", generator=generator).to(of)[:, 8 : 8 + k]
    bias = torch.randn(n, device="cuda", generator=generator).to(of).float()
    answer = matmul_float64(x, q, bias)
    bound = error_bound(x, q, of, bias, 2 * k)
    return x, q, pack(q, CUDA_A8_LAYOUT, of), bias, answer, bound


def _is_right(out, answer, bound, exact, k):
    """On the GPU, which nobody waits for."""
    error = (out.double() - answer).abs()
    if not exact:
        typical = answer.square().mean().sqrt()
        bound = bound + (-(-k // 32) + 8) * _FP8_SUMS * (answer.abs() + typical)
    return (error <= bound).all()


@lru_cache(maxsize=256)
def _loaded(config, format):
    return kernel_for(config, byte_problem(format))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_some_configs_are_right_for_odd_shapes(m, n, k, format):
    _check(_some(format), m, n, k, format)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_every_config_is_right_for_odd_shapes(format):
    compile_problems([(config, byte_problem(format)) for config in wgmma8_configs(format)])
    for m, n, k in SHAPES:
        _check(wgmma8_configs(format), m, n, k, format)


def _check(configs: list[Wgmma8Config], m: int, n: int, k: int, format: str) -> None:
    whole = QuantFormat.parse(format).activation.dtype.is_integer
    x, _, packed, bias, answer, bound = _operands(m, n, k, format)
    verdicts = Verdicts()
    for config in configs:
        if -(-k // 128) < config.split_k:
            continue
        first, inside = launch_unseen(_loaded(config, format), x, packed, bias)
        again, still = launch_unseen(_loaded(config, format), x, packed, bias)
        verdicts.ask(f"{config} writes elsewhere", inside & still)
        verdicts.ask(f"{config} differs from itself", (first == again).all())
        verdicts.ask(f"{config} is wrong", _is_right(first, answer, bound, whole, k))
    for words in (*counters._EAGER.values(), *counters._CAPTURED.values()):
        verdicts.ask("counters are not zero", (words == 0).all())
    verdicts.check()


@pytest.mark.parametrize("format", FORMATS[:5])
def test_x_that_is_quantized_gives_the_same_bits(format):
    m, n, k = 70, 648, 520
    x, _, packed, bias, _, _ = _operands(m, n, k, format)
    loaded = _loaded(_some(format)[-1], format)
    out = torch.empty(m, n, dtype=x.dtype, device="cuda")
    loaded.launch_quantized(*_quantized(x, format), packed, bias, out)
    assert torch.equal(out, launch(loaded, x, packed, bias))


def _quantized(x, format):
    """Codes and scales of x as a kernel takes them."""
    m, k = x.shape
    codes, scales = quantize_activations(x, QuantFormat.parse(format).activation)
    padded = torch.zeros(m, -(-k // 128) * 128, dtype=torch.uint8, device="cuda")
    padded[:, :k] = codes.view(torch.uint8)
    turned = torch.zeros(scales.shape[1], -(-m // 4) * 4, device="cuda")
    turned[:, :m] = scales.T
    return padded, turned


@pytest.mark.parametrize("fast_sums", [0, 1])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_torchs_own_product_is_right(m, n, k, fast_sums):
    format = "fp8e4m3-fp8e4m3"
    x, _, packed, bias, answer, bound = _operands(m, n, k, format)
    loaded = kernel_for(ScaledMmConfig(fast_sums), byte_problem(format))
    assert bool(_is_right(launch(loaded, x, packed, bias), answer, 2 * bound, False, k))


@pytest.mark.parametrize("dtype", dtypes() if torch.cuda.is_available() else [])
def test_no_rows_and_many_rows(dtype):
    for format in ("int8-int8", "int4-fp8e4m3"):
        asked = byte_problem(format, activation=dtype)
        loaded: CudaKernel = kernel_for(_first(format), asked)
        x, _, packed, _, _, _ = _operands(33, 640, 512, format, dtype)
        empty = torch.empty(0, 640, dtype=x.dtype, device="cuda")
        loaded.launch(x[:0], packed, None, empty)
        many = x.repeat(2048, 1)[:65536].contiguous()
        out = launch(loaded, many, packed)
        assert torch.equal(out[: len(x)], launch(loaded, x.contiguous(), packed))
        assert torch.equal(out[33 * 1000 : 33 * 1001], out[:33])


def test_captured_graphs_give_the_same_bits():
    format = "int8-int8"
    x, _, packed, _, _, _ = _operands(70, 648, 520, format)
    config = next(c for c in _some(format) if c.stream_k and c.cluster_n == 1)
    loaded = kernel_for(config, byte_problem(format))
    expected = launch(loaded, x, packed)
    out, graph = torch.empty_like(expected), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            loaded.launch(x, packed, None, out)
    for _ in range(5):
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["fp8e4m3-fp8e4m3", "mxfp4-fp8e4m3"])
def test_many_calls_of_any_m_neither_hang_nor_differ(format):
    """5,000 calls of each kernel, with blocks that meet, m at random: some twenty kernels. One may
    begin before the one before it ends, as nothing quantizes x between them."""
    n, k, most = 1000, 2304, 300
    x, _, packed, bias, _, _ = _operands(most, n, k, format)
    codes, scales = _quantized(x, format)
    out = torch.empty(most, n, dtype=x.dtype, device="cuda")
    rows = [(codes[:m], scales, packed, bias, out[:m]) for m in range(most + 1)]
    draw = torch.Generator().manual_seed(7)
    configs = wgmma8_configs(format)
    compile_problems([(config, byte_problem(format)) for config in configs])
    for config in configs:
        loaded, verdicts = _loaded(config, format), Verdicts()
        expected = launch(loaded, x, packed, bias)
        for part in range(10):
            out.fill_(float("nan"))
            for m in torch.randint(1, most + 1, (499,), generator=draw).tolist():
                loaded.launch_quantized(*rows[m])
            loaded.launch_quantized(*rows[most])
            verdicts.ask(f"{config} after {500 * (part + 1)} calls", (out == expected).all())
        verdicts.check()


def _first(format: str) -> KernelConfig:
    return next(c for c in _some(format) if c.block_m >= PLAIN_WGMMA8.block_m)
