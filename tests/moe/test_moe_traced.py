"""HummingExperts compiled by torch, and under autocast."""

import pytest
import torch

import humming
from humming.moe import op

E, H, WIDTH = 4, 64, 64


def made(top_k=None):
    draw = torch.Generator().manual_seed(1)
    up = torch.randn(E, 2 * WIDTH, H, generator=draw)
    down = torch.randn(E, H, WIDTH, generator=draw)
    return humming.HummingExperts.from_float(up, down, "int4g32", "silu", top_k=top_k)


def operands(m, top_k, dtype=torch.float32):
    draw = torch.Generator().manual_seed(m)
    ids = torch.randint(0, E, (m, top_k), generator=draw)
    return torch.randn(m, H, generator=draw).to(dtype), ids, torch.rand(m, top_k, generator=draw)


@pytest.mark.parametrize("top_k", [None, 2])
def test_experts_compile_without_a_graph_break_and_are_looked_up_by_their_top_k(top_k, monkeypatch):
    experts, served = made(top_k), []
    run = op.run

    def watched(x, weight, bias, rows, spec):
        served.append(spec.top_k)
        return run(x, weight, bias, rows, spec)

    monkeypatch.setattr(op, "run", watched)
    torch._dynamo.reset()
    compiled = torch.compile(experts, backend="aot_eager", fullgraph=True)
    with torch.inference_mode():
        for m, count in ((7, 2), (3, 2), (12, 2), (5, 3)):
            given = operands(m, count)
            out = compiled(*given)
            assert served[-2:] == [count, count]
            assert torch.equal(out, experts(*given))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_multiplies_in_its_type_and_gives_that_of_x(dtype):
    experts, (x, ids, weights) = made(), operands(5, 2, dtype)
    with torch.inference_mode():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = experts(x, ids, weights)
        assert out.dtype == dtype
        assert torch.equal(out, experts(x.bfloat16(), ids, weights).to(dtype))


def test_autocast_in_a_compiled_model():
    torch._dynamo.reset()
    experts, given = made(), operands(5, 2)
    compiled = torch.compile(experts, backend="aot_eager", fullgraph=True)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(*given), experts(*given))
