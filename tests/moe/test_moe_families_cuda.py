"""Grouped kernels of every family by configs that the tuner may try, and every weight format, on a
GPU against float64."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest
import torch
from format_cases import FORMATS
from moe_cases import ids_of

import humming
from humming.jit.cache import compiled
from humming.jit.detect import cuda_devices
from humming.jit.load import load
from humming.moe.rows import Rows
from humming.quantize import PackedExperts, QuantizedTensor, pack_experts
from humming.quantize.activations import requantized
from humming.quantize.drawn import drawn
from humming.spec.config import KernelConfig, SkinnyConfig
from humming.spec.formats import QuantFormat
from humming.spec.layouts import layout_for
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.searching.candidates import legal_candidates

pytestmark = pytest.mark.gpu

COUNT, TOP_K, EACH = 5, 2, 3
TUNED = ("int4g128", "mxfp4", "nvfp4", "uint4g128z", "fp8e4m3b128", "int8")
QUANTIZED = ("mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128", "int8-int8", "int4-fp8e4m3")


def problem_of(format: str, n: int, k: int, m: int) -> Problem:
    layout = layout_for(cuda_devices()[0], format, "moe")
    experts = {"op": "moe", "experts": COUNT, "top_k": TOP_K, "routing": "uniform"}
    return Problem(format, n, k, m, "bf16", "bf16", layout, **experts)


def weights_of(format: str, n: int, k: int) -> list[QuantizedTensor]:
    generator = torch.Generator(device="cuda").manual_seed(n + k)
    return [drawn(format, n, k, generator, torch.bfloat16) for _ in range(COUNT)]


def answer(x: torch.Tensor, weights: list[QuantizedTensor], ids: torch.Tensor) -> torch.Tensor:
    """float64 [rows, n]; rows of nobody are zero."""
    flat = requantized(x, QuantFormat.parse(weights[0].format).activation)
    flat = flat.double().repeat_interleave(TOP_K, 0)
    out = torch.zeros(len(flat), weights[0].shape[0], dtype=torch.float64, device=x.device)
    for expert, weight in enumerate(weights):
        mine = ids.flatten() == expert
        out[mine] = flat[mine] @ weight.dequantize().T
    return out


def check(out: torch.Tensor, wanted: torch.Tensor, *told: object) -> None:
    error, size = (out.double() - wanted).norm(dim=1), wanted.norm(dim=1)
    assert bool((error <= 6e-3 * size + 1e-6).all()), (told, float((error / (size + 1e-6)).max()))


def tried(problem: Problem, seed: int) -> dict[str, list[KernelConfig]]:
    """A few of the space's configs of each family."""
    every = legal_candidates(problem, cuda_devices()[0], load_spaces()).configs.values()
    families = defaultdict(list)
    for config in every:
        families[config.family].append(config)
    pick = Random(seed)
    return {f: pick.sample(found, min(EACH, len(found))) for f, found in families.items()}


@pytest.mark.parametrize("tokens", [3, 40, 400])
@pytest.mark.parametrize("format", QUANTIZED + TUNED)
def test_what_the_tuner_may_try_gives_right_rows(format, tokens):
    n, k = ((200, 328), (704, 640), (96, 1856))[(tokens + len(format)) % 3]
    problem = problem_of(format, n, k, tokens)
    weights = weights_of(format, n, k)
    packed = pack_experts(weights, problem.layout, torch.bfloat16)
    for configs in tried(problem, tokens).values():
        for config in configs:
            check_config(config, problem, tokens, weights, packed)


def check_config(
    config: KernelConfig,
    problem: Problem,
    tokens: int,
    weights: list[QuantizedTensor],
    packed: PackedExperts,
) -> None:
    device, n, k = cuda_devices()[0], problem.n, problem.k
    kernel: Any = load(compiled(config, problem, device), device)
    for m, skew in ((tokens, "others"), (2 * tokens + 1, "few"), (1, "uniform")):
        ids = ids_of(skew, m, TOP_K, COUNT).cuda()
        x = torch.randn(m, k, device="cuda").bfloat16()
        rows = Rows.indexed(ids)
        out = x.new_full((rows.count, n), float("nan"))
        size = kernel.experts_workspace_bytes(rows, packed)
        room = torch.full((size,), 255, dtype=torch.uint8, device="cuda")
        kernel.launch_experts(x, packed, None, out, rows, room)
        check(out, answer(x, weights, ids), config, m, skew)


WALKS = [
    SkinnyConfig(8, 8, 1, 1, 2, 2, 1, 8, 1, 0, 0, walk=1),
    SkinnyConfig(16, 4, 2, 1, 3, 1, 1, 2, 1, 0, 0, walk=1),
    SkinnyConfig(24, 2, 4, 1, 2, 1, 1, 1, 1, 0, 0, walk=1),
]


@pytest.mark.parametrize("format", TUNED)
@pytest.mark.parametrize("size", [(7168, 256), (2056, 776), (200, 1864)])
def test_blocks_that_walk_through_tiles_give_right_rows(format, size):
    problem = problem_of(format, *size, 400)
    weights = weights_of(format, *size)
    packed = pack_experts(weights, problem.layout, torch.bfloat16)
    for config in WALKS:
        if config.warps * 128 < size[1] + 128:
            check_config(config, problem, 400, weights, packed)


@pytest.mark.parametrize("format", FORMATS)
def test_experts_of_every_weight_format_are_right(format):
    n, k = 208, 264
    weights = weights_of(format, n, k)
    packed = pack_experts(weights, problem_of(format, n, k, 1).layout, torch.bfloat16)
    for m in (1, 9, 300):
        ids = ids_of("others", m, TOP_K, COUNT).cuda()
        x = torch.randn(m, k, device="cuda").bfloat16()
        out = humming.moe_gemm(x, packed, ids=ids).view(-1, n)
        check(out, answer(x, weights, ids), format, m)
