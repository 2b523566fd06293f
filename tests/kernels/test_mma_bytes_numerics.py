"""The family mma multiplies codes right, in every format that the GPU takes. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from format_cases import random_weight
from gpu_cases import compile_problems, device, dtypes, kernel_for, launch, relative_error
from mma_bytes_cases import FORMATS, PLAIN_BYTES, bytes_configs, bytes_problem, takes

from humming.jit.load import TORCH_DTYPES
from humming.quantize import pack
from humming.quantize.activations import requantized
from humming.reference import matmul_float64
from humming.spec.config import MmaConfig
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT

pytestmark = pytest.mark.gpu

SHAPES = [(264, 520), (24, 1000), (1537, 776), (8, 128), (520, 40)]
ROWS = (1, 7, 65, 130)


def capability() -> tuple[int, int]:
    return device().compute_capability or (0, 0)


def mine() -> list[str]:
    return [format for format in FORMATS if takes(format, capability())]


def configs(format: str, dtype: str) -> list[MmaConfig]:
    """Some of those that the GPU runs, others for each format; compiled together."""
    able = bytes_configs(format, capability(), dtype)
    start = FORMATS.index(format) if format in FORMATS else 0
    chosen = [able[(start + 2 * i) % len(able)] for i in range(min(len(able), 4))]
    chosen = list(dict.fromkeys(chosen))
    compile_problems([(config, bytes_problem(format, dtype)) for config in chosen])
    return chosen


def drawn(m: int, k: int, of: torch.dtype, seed: int) -> torch.Tensor:
    draw = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn((m, k), generator=draw, device="cuda")
    return (x * torch.exp2(torch.randint(-3, 4, (m, 1), generator=draw, device="cuda"))).to(of)


def of_torch(x, q, bias):
    """Torch's product of the same quantized x and the dequantized weight, each rounded once."""
    activation = QuantFormat.parse(q.format).activation
    rounded = requantized(x, activation, q.permutation, q.input_scale).to(x.dtype)
    return torch.nn.functional.linear(
        rounded, q.dequantize(x.dtype), None if bias is None else bias.to(x.dtype)
    )


def check(out, x, q, bias, what):
    answer = matmul_float64(x, q, bias)
    ours, theirs = relative_error(out, answer), relative_error(of_torch(x, q, bias), answer)
    limit = 1.1 * theirs + 1e-6
    if out.numel() < 256:
        limit = max(1.7 * theirs, 0.6 * torch.finfo(out.dtype).eps)
    assert ours <= limit, f"{what}: {ours:.2e}, torch {theirs:.2e}"


@pytest.mark.parametrize("format", FORMATS)
def test_every_config_is_right_for_odd_shapes(format):
    if format not in mine():
        pytest.skip("this GPU multiplies it in 16 bits")
    dtype = dtypes()[0]
    of, chosen = TORCH_DTYPES[dtype], configs(format, dtype)
    for n, k in SHAPES:
        draw = torch.Generator("cuda").manual_seed(n + k)
        q = random_weight(format, n, k, dtype, draw)
        packed = pack(q, CUDA_A8_LAYOUT, of)
        bias = torch.randn(n, generator=draw, device="cuda")
        for number, config in enumerate(chosen):
            loaded = kernel_for(config, bytes_problem(format, dtype))
            for m in ROWS:
                x, b = drawn(m, k, of, m + k), bias if (m + number) % 2 else None
                first = launch(loaded, x, packed, b)
                assert torch.equal(launch(loaded, x, packed, b), first), f"{config} m={m}"
                check(first, x, q, b, f"{config} {n}x{k} m={m}")


@pytest.mark.parametrize("format", ["int4g128-int8", "int8g64-int8g64", "mxfp4-fp8e4m3"])
def test_act_order_gathers_x(format):
    if not takes(format, capability()):
        pytest.skip("this GPU multiplies it in 16 bits")
    dtype = dtypes()[0]
    of = TORCH_DTYPES[dtype]
    draw = torch.Generator("cuda").manual_seed(5)
    q = random_weight(format, 136, 640, dtype, draw)
    order = torch.randperm(640, generator=draw, device="cuda").to(torch.int32)
    q = replace(q, permutation=order)
    asked = replace(bytes_problem(format, dtype), act_order=True)
    loaded = kernel_for(PLAIN_BYTES, asked)
    x = drawn(33, 640, of, 3)
    check(launch(loaded, x, pack(q, CUDA_A8_LAYOUT, of)), x, q, None, format)


def test_a_kernel_alone_gives_what_the_whole_call_does():
    dtype = dtypes()[0]
    of = TORCH_DTYPES[dtype]
    q = random_weight("int4g128-int8", 264, 520, dtype, torch.Generator("cuda").manual_seed(1))
    packed, x = pack(q, CUDA_A8_LAYOUT, of), drawn(40, 520, of, 9)
    loaded = kernel_for(PLAIN_BYTES, bytes_problem(q.format, dtype))
    room = torch.empty(loaded.input.nbytes(40, 520), dtype=torch.uint8, device="cuda")
    made = loaded.input.enqueue(x, room)
    out = torch.empty((40, 264), dtype=of, device="cuda")
    loaded.launch_quantized(made.codes, made.scales, packed, None, out)
    assert torch.equal(out, launch(loaded, x, packed))


def test_replays_of_a_graph_are_equal_to_the_bit():
    dtype = dtypes()[0]
    of = TORCH_DTYPES[dtype]
    q = random_weight("int4g128-int8", 1537, 776, dtype, torch.Generator("cuda").manual_seed(2))
    packed, x = pack(q, CUDA_A8_LAYOUT, of), drawn(100, 776, of, 9)
    for config in configs(q.format, dtype)[:2]:
        loaded = kernel_for(config, bytes_problem(q.format, dtype))
        needed = loaded.workspace_bytes(100, 1537, 776)
        room = torch.empty(needed, dtype=torch.uint8, device="cuda")
        out = torch.empty((100, 1537), dtype=of, device="cuda")
        loaded.launch(x, packed, None, out, room)
        right, graph = out.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loaded.launch(x, packed, None, out, room)
        for _ in range(100):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, right), str(config)
