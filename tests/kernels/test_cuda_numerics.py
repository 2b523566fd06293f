"""CUDA kernels give the right numbers for every shape, and write nothing else. Needs a GPU."""

from __future__ import annotations

import pytest
import torch
from cuda_cases import problem
from gpu_cases import (
    MOST_ROWS,
    Errors,
    case,
    compile_all,
    dequantize_configs,
    device,
    dtypes,
    kernel,
    launch,
    relative_error,
    skinny_configs,
)

from humming.dispatch.heuristics import heuristic
from humming.spec.config import DequantizeConfig, SkinnyConfig
from humming.spec.legality import families_for

pytestmark = pytest.mark.gpu

SHAPES = [
    (648, 520),
    (24, 1000),
    (4104, 1160),
    (1537, 776),
    (8, 128),
    (2568, 8),
    (1, 264),
    (1024, 28672),
]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    configs = [*skinny_configs(), *dequantize_configs()]
    compile_all([(config, dtype) for config in configs for dtype in dtypes()])


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_every_config_is_right_for_odd_shapes(n, k):
    for dtype in dtypes():
        for index, config in enumerate([*skinny_configs(), *dequantize_configs()]):
            errors, loaded = Errors(), kernel(config, dtype)
            rows = min(config.block_m, 40)
            for seed in range(-(-64 // n)):  # few rows of w are few roundings of weights
                operands = case(n, k, dtype, seed)
                for m in sorted({1, min(5, rows), max(1, rows - 3), rows, rows + 3}):
                    bias = (m + index) % 2 == 1
                    x = (operands.odd_x if (m + index) % 3 == 0 else operands.x)[:m]
                    call = (loaded, x, operands.packed, operands.bias if bias else None)
                    out = launch(*call)
                    if seed == 0:
                        assert torch.equal(out, launch(*call)), f"{config} {dtype} m={m}"
                    errors.add(out, operands, m, bias)
            errors.check(f"{config} {dtype}")


def test_default_configs_are_right_for_every_m():
    n, k = 1368, 1544
    for dtype in dtypes():
        defaults = {m: heuristic(problem(dtype, n, k, m), device()) for m in range(MOST_ROWS + 1)}
        compile_all([(config, dtype) for config in set(defaults.values())])
        operands = case(n, k, dtype)
        for m, config in defaults.items():
            out = launch(kernel(config, dtype), operands.x[:m], operands.packed, operands.bias)
            assert out.shape == (m, n)
            if m:
                errors = Errors()
                errors.add(out, operands, m, True)
                errors.check(f"{config} {dtype} m={m}")


def test_dequantized_weights_are_exact():
    for dtype in dtypes():
        for n, k in SHAPES:
            operands = case(n, k, dtype)
            loaded = kernel(DequantizeConfig(8, 2, 0), dtype)
            room = torch.zeros(loaded.workspace_bytes(1, n, k), dtype=torch.uint8, device="cuda")
            out = torch.empty(1, n, dtype=operands.w.dtype, device="cuda")
            loaded.launch(operands.x[:1], operands.packed, None, out, room)
            w = room.view(operands.w.dtype).view(n, k)
            assert torch.equal(w.view(torch.int16), operands.w.view(torch.int16))


def test_a_bias_of_any_float_type_and_an_expanded_x():
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    for config in (skinny_configs()[5], DequantizeConfig(8, 2, 0)):
        loaded, x = kernel(config, dtype), operands.x[:6]
        expected = launch(loaded, x, operands.packed, operands.bias)
        for other in (torch.bfloat16, torch.float16, torch.float64):
            exact = operands.bias.to(other).to(operands.bias.dtype) == operands.bias
            if bool(exact.all()):
                assert torch.equal(
                    launch(loaded, x, operands.packed, operands.bias.to(other)), expected
                )
        wide = launch(loaded, operands.x[2:3].expand(6, -1), operands.packed)
        for row in wide:
            assert torch.equal(row, wide[0])


def test_an_infinite_x_spoils_its_own_row_only():
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    for config in (*skinny_configs(), DequantizeConfig(8, 2, 0)):
        if config.block_m < 8:
            continue
        x = operands.x[:6].clone()
        right = launch(kernel(config, dtype), x, operands.packed)
        x[2, 77] = float("inf")
        spoilt = launch(kernel(config, dtype), x, operands.packed)
        assert not bool(spoilt[2].isfinite().any())
        if isinstance(config, SkinnyConfig) and not config.exact_codes:
            assert bool(spoilt[2].isnan().all())
        others = [0, 1, 3, 4, 5]
        assert torch.equal(spoilt[others], right[others])


def test_large_weights_need_64_bit_offsets():
    """codes [., .] of more than 2**31 elements in 16 bits: panels and rows beyond 4 GiB."""
    dtype, n, k = dtypes()[0], 151_936, 16_384
    if torch.cuda.mem_get_info()[0] < 40 << 30:
        return
    operands = _large(n, k, dtype)
    for config in (
        heuristic(problem(dtype, n, k, 1), device()),
        DequantizeConfig(8, 2, 0),
        DequantizeConfig(8, 2, 8192),
    ):
        packed, x, answer = operands
        out = launch(kernel(config, dtype), x, packed)
        assert relative_error(out[:, -2048:], answer) < 5e-3


def _large(n, k, dtype):
    """A weight whose last 2048 rows have an answer; the others are zero."""
    from humming.quantize import PackedWeight

    tail = case(2048, k, dtype)
    codes = torch.full((n // 16, k // 64, 128), -0x77777778, dtype=torch.int32, device="cuda")
    scales = torch.zeros(n // 16, k // 128, 8, 2, dtype=tail.w.dtype, device="cuda")
    codes[-128:], scales[-128:] = tail.packed.codes, tail.packed.scales
    packed = PackedWeight("int4g128", n, k, tail.packed.layout, codes, scales, tail.w.dtype)
    return packed, tail.x[:1], tail.answer(1, False)


def test_all_families_serve_this_gpu():
    assert {"skinny", "dequantize"} <= set(families_for(problem(dtypes()[0]), device()))
