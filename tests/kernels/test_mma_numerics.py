"""The family mma gives the right numbers for every shape, and writes nothing else. Needs a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from cuda_cases import problem
from gpu_cases import MOST_ROWS, case, compile_all, device, dtypes, kernel, launch, relative_error
from mma_cases import mma_configs

from humming.spec.legality import config_violations

pytestmark = pytest.mark.gpu

SHAPES = [(648, 520), (24, 1000), (4104, 1160), (1537, 776), (8, 128), (2568, 8), (1, 264)]
ROWS = 300


def configs():
    return mma_configs(device().compute_capability or (0, 0))


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    compile_all([(config, dtype) for config in configs() for dtype in dtypes()])


def _rows(operands, m):
    """m rows of x, MOST_ROWS of which are different: a number that divides no tile."""
    return operands.x[torch.arange(m, device="cuda") % MOST_ROWS]


@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_every_config_is_right_for_odd_shapes(n, k):
    for dtype in dtypes():
        operands = case(n, k, dtype)
        for index, config in enumerate(configs()):
            loaded = kernel(config, dtype)
            for m in sorted({1, 7, config.block_m - 3, config.block_m, config.block_m + 5, ROWS}):
                bias = operands.bias if (m + index) % 2 else None
                first = launch(loaded, _rows(operands, m), operands.packed, bias)
                again = launch(loaded, _rows(operands, m), operands.packed, bias)
                assert torch.equal(first, again), f"{config} {dtype} m={m}"
                _assert_as_good_as_torch(first, operands, m, bias, f"{config} {dtype} m={m}")


def _assert_as_good_as_torch(out, operands, m, bias, what):
    order = torch.arange(m, device="cuda") % MOST_ROWS
    answer = operands.product[order] + (0 if bias is None else bias.double())
    theirs = relative_error(
        torch.nn.functional.linear(
            operands.x[order], operands.w, None if bias is None else bias.to(out.dtype)
        ),
        answer,
    )
    ours, limit = relative_error(out, answer), 1.1 * theirs + 1e-6
    if out.numel() < 256:  # few outputs are few samples of rounding, and noisy
        limit = max(1.7 * theirs, 0.6 * torch.finfo(out.dtype).eps)
    assert ours <= limit, f"{what}: {ours:.2e}, torch {theirs:.2e}"


def test_sums_that_begin_in_fp16_cost_several_times_the_error_and_no_more():
    operands = case(648, 1160, "fp16")
    for config in configs()[1:4]:
        halves = replace(config, half_sums=1)
        if config_violations(halves, problem("fp16"), device()):
            continue
        out = launch(kernel(halves, "fp16"), _rows(operands, 70), operands.packed)
        plain = launch(kernel(config, "fp16"), _rows(operands, 70), operands.packed)
        answer = operands.answer(70, False)
        assert not torch.equal(out, plain)
        assert relative_error(out, answer) <= 8 * relative_error(plain, answer)


def test_rows_at_odd_places_and_any_stride_are_read_right():
    for dtype in dtypes():
        operands = case(648, 520, dtype)
        for config in configs():
            loaded = kernel(config, dtype)
            aligned = launch(loaded, operands.x[:40], operands.packed)
            assert torch.equal(launch(loaded, operands.odd_x[:40], operands.packed), aligned)
            if config.stream_k:
                continue  # where a tile's k is cut depends on m
            wide = launch(loaded, operands.x[2:3].expand(6, -1), operands.packed)
            assert torch.equal(wide, aligned[2:3].expand(6, -1))


def test_an_infinite_x_spoils_its_own_row_only():
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    for config in configs():
        x = operands.x[:40].clone()
        right = launch(kernel(config, dtype), x, operands.packed)
        x[3, 77] = float("inf")
        spoilt = launch(kernel(config, dtype), x, operands.packed)
        others = [row for row in range(40) if row != 3]
        assert not bool(spoilt[3].isfinite().any())
        assert torch.equal(spoilt[others], right[others])


def test_replays_of_a_graph_are_equal_to_the_bit():
    dtype, n, k = dtypes()[0], 1537, 776
    operands = case(n, k, dtype)
    for config in configs()[::3]:
        loaded, x = kernel(config, dtype), _rows(operands, 200)
        outs = [torch.empty(200, n, dtype=x.dtype, device="cuda") for _ in range(2)]
        room = torch.empty(loaded.workspace_bytes(200, n, k), dtype=torch.uint8, device="cuda")
        loaded.launch(x, operands.packed, operands.bias, outs[0], room)
        expected = outs[0].clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for out in (*outs, *outs):
                loaded.launch(x, operands.packed, operands.bias, out, room)
        for _ in range(100):
            for out in outs:
                out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(outs[0], expected), str(config)
            assert torch.equal(outs[1], expected), str(config)
