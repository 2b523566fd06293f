"""Every weight format by each CUDA family: odd shapes, act-order, both activation types. Needs a
GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cuda_cases import PLAIN, problem
from format_cases import FORMATS, random_weight
from gpu_cases import KNOBS, Errors, case_of, compile_problems, device, dtypes, kernel_for, launch
from mma_cases import PLAIN_MMA

from humming.dispatch.heuristics import heuristic
from humming.jit.load import TORCH_DTYPES
from humming.spec.config import DequantizeConfig, KernelConfig
from humming.spec.legality import config_violations, families_for
from humming.spec.problem import Problem

pytestmark = pytest.mark.gpu

SHAPES = ((24, 1000), (1537, 776), (40, 333), (648, 520), (16, 128), (129, 1), (200, 4104))
"""The second and the last with act-order."""

SKINNY = tuple(
    replace(PLAIN, **dict(zip(KNOBS, knobs, strict=True)), warpgroup=warpgroup)
    for warpgroup, knobs in (
        (0, (1, 4, 8, 1, 2, 2, 2, 1, 0)),
        (1, (16, 2, 8, 1, 3, 1, 2, 1, 0)),
        (0, (8, 3, 8, 1, 0, 1, 2, 1, 0)),
        (0, (16, 4, 4, 1, 3, 1, 1, 1, 0)),
        (1, (24, 1, 4, 1, 2, 1, 3, 1, 0)),
        (0, (8, 5, 4, 1, 2, 1, 2, 1, 1)),
        (0, (32, 2, 2, 1, 0, 1, 1, 1, 0)),
    )
)
MMA = (
    PLAIN_MMA,
    replace(PLAIN_MMA, num_stages=4, warps_k=2),
    replace(PLAIN_MMA, block_m=64, block_n=128, warps_n=4, split_k=2),
    replace(PLAIN_MMA, block_m=16, block_k=128, num_stages=3, stream_k=1),
)
Call = tuple[KernelConfig, Problem]


def _calls(format: str, dtype: str) -> list[Call]:
    """A cover: of each format and type two configs of skinny, one of mma, dequantize, and a default
    one; from one to the next all take the next shape, so that each meets each kind of format."""
    turn = 2 * FORMATS.index(format) + (dtype == "fp16")

    def asked(step: int, m: int = 1) -> Problem:
        number = (turn + step) % len(SHAPES)
        n, k = SHAPES[number]
        return problem(dtype, n, k, m, format, act_order=number in (1, 6))

    calls: list[Call] = [(DequantizeConfig(8, 2, 0), asked(5))]
    for step in (0, 3):
        order = [SKINNY[(turn + 2 * step + i) % len(SKINNY)] for i in range(len(SKINNY))]
        legal = [c for c in order if not config_violations(c, asked(step), device())]
        calls += [(config, asked(step)) for config in legal[:1]]
    order = [MMA[(turn + i) % len(MMA)] for i in range(len(MMA))]
    calls += [(c, asked(2)) for c in order if not config_violations(c, asked(2), device())][:1]
    default = asked(1, (1, 8, 16, 32, 50)[turn % 5])
    return [*calls, (heuristic(default, device()), default)]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    compile_problems([call for f in FORMATS for dtype in dtypes() for call in _calls(f, dtype)])


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_as_exact_as_torch(format):
    for dtype in dtypes():
        for index, (config, asked) in enumerate(_calls(format, dtype)):
            errors, loaded = Errors(), kernel_for(config, asked)
            rows = min(config.block_m, 40)
            for seed in range(-(-64 // asked.n)):
                made = torch.Generator("cuda").manual_seed(seed * 7919 + index)
                q = random_weight(format, asked.n, asked.k, dtype, made, asked.act_order)
                operands = case_of(q, dtype, made)
                for m in sorted({1, max(1, rows - 3), rows, rows + 3}):
                    bias = (m + index) % 2 == 1
                    x = (operands.odd_x if (m + index) % 3 == 0 else operands.x)[:m]
                    call = (loaded, x, operands.packed, operands.bias if bias else None)
                    out = launch(*call)
                    if seed == 0 and m == rows:
                        assert torch.equal(out, launch(*call)), f"{config} {asked}"
                    errors.add(out, operands, m, bias)
            errors.check(f"{format} {dtype} {config} n={asked.n} k={asked.k}")


@pytest.mark.parametrize("format", FORMATS)
def test_dequantized_weights_are_rounded_once(format):
    for dtype in dtypes():
        n, k, of = 40, 333, TORCH_DTYPES[dtype]
        asked = problem(dtype, n, k, 1, format)
        made = torch.Generator("cuda").manual_seed(3)
        q = random_weight(format, n, k, dtype, made)
        operands, loaded = case_of(q, dtype, made), kernel_for(DequantizeConfig(8, 2, 0), asked)
        room = torch.zeros(loaded.workspace_bytes(1, n, k), dtype=torch.uint8, device="cuda")
        out = torch.empty(1, n, dtype=of, device="cuda")
        loaded.launch(operands.x[:1], operands.packed, None, out, room)
        w, expected = room.view(of).view(n, -1)[:, :k], q.dequantize(of)
        if q.global_scales is None and asked.quant.weight.zero_point != "float":
            assert torch.equal(w, expected)
        else:  # through fp32, which may round a tie another way
            assert float((w != expected).double().mean()) < 1e-3


@pytest.mark.parametrize("format", ["int4g128", "int3g128", "uint4g128z", "nvfp4", "fp8e4m3"])
def test_a_hundred_runs_are_equal_to_the_bit(format):
    dtype, n, k = dtypes()[0], 1537, 4104
    made = torch.Generator("cuda").manual_seed(1)
    operands = case_of(random_weight(format, n, k, dtype, made), dtype, made)
    for m in (1, 16, 40):
        asked = problem(dtype, n, k, m, format)
        for config in (heuristic(asked, device()), DequantizeConfig(8, 2, 512)):
            loaded, x = kernel_for(config, asked), operands.x[:m]
            first = torch.empty(m, n, dtype=x.dtype, device="cuda")
            loaded.launch(x, operands.packed, operands.bias, first)
            for _ in range(100):
                out = torch.full_like(first, float("nan"))
                loaded.launch(x, operands.packed, operands.bias, out)
                assert torch.equal(out, first), f"{config} m={m}"


def test_every_format_has_a_family_on_this_gpu():
    for format in FORMATS:
        for dtype in dtypes():
            families = families_for(problem(dtype, 100, 333, 1, format, True), device())
            assert "dequantize" in families
