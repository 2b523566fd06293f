"""Grouped kernels on a GPU against float64: every op, formats of every kind, odd shapes and skews;
the kernels around them against what torch computes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from moe_cases import SKEWS, ids_of

import humming
from humming.jit.load import TORCH_DTYPES
from humming.moe.activations import GATED, PLAIN, ExpertActivation
from humming.moe.router import RouterRule, combine, route, route_by_torch
from humming.moe.rows import Rows
from humming.moe.stack import ExpertStack
from humming.quantize import pack_experts
from humming.quantize.activations import requantized
from humming.quantize.drawn import drawn
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_LAYOUT
from humming.state import layout_on

pytestmark = pytest.mark.gpu

FORMATS = ("int4g128", "mxfp4", "nvfp4", "uint4g128z", "int8", "fp8e4m3", "int3g64", "fp8e4m3b128")
QUANTIZED = ("int4-int8", "mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128", "uint4g64z-int8")
SHAPES = ((40, 72), (33, 2880), (704, 640), (720, 256), (1856, 100))
OPS = ("indexed", "own-rows", "contiguous", "masked")


def check(op: str, format: str, n: int, k: int, skew: str, dtype: str, m: int) -> None:
    count, top_k, of = 7, 3, TORCH_DTYPES[dtype]
    generator = torch.Generator(device="cuda").manual_seed(n + k + m)
    order = op == "own-rows" and format == "int4g128"
    weights = [drawn(format, n, k, generator, of, act_order=order) for _ in range(count)]
    layout = layout_on(torch.device("cuda"), format, "moe", order)
    packed = pack_experts(weights, layout, of)
    bias = torch.randn(count, n, generator=generator, device="cuda")
    ids = ids_of(skew, m, top_k, count).cuda()
    chosen = torch.where((ids >= 0) & (ids < count), ids, -1).flatten()
    if op in ("indexed", "own-rows"):
        shape = (m, k) if op == "indexed" else (m, top_k, k)
        x = torch.randn(shape, generator=generator, device="cuda").to(of)
        out = humming.moe_gemm(x, packed, ids=ids, bias=bias).view(-1, n)
        flat = x.repeat_interleave(top_k, 0) if op == "indexed" else x.view(-1, k)
    else:
        counts = torch.bincount(chosen[chosen >= 0], minlength=count)
        chosen = torch.repeat_interleave(torch.arange(count, device="cuda"), counts)
        flat = torch.randn(len(chosen), k, generator=generator, device="cuda").to(of)
        if op == "contiguous":
            offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
            out = humming.moe_gemm(flat, packed, offsets=offsets, bias=bias, top_k=top_k)
        else:
            inside = torch.arange(int(counts.max()) + 3, device="cuda") < counts[:, None]
            padded = torch.full((*inside.shape, k), float("nan"), dtype=of, device="cuda")
            padded[inside] = flat
            out = humming.moe_gemm(padded, packed, counts=counts, bias=bias, top_k=top_k)[inside]
    flat = requantized(flat, QuantFormat.parse(format).activation)
    wanted = torch.zeros(len(chosen), n, dtype=torch.float64, device="cuda")
    for expert, weight in enumerate(weights):
        mine = chosen == expert
        wanted[mine] = flat[mine].double() @ weight.dequantize().T + bias[expert].double()
    if len(wanted):
        error = (out.double() - wanted).norm(dim=1)
        size = wanted.norm(dim=1)
        most = 6e-3 if dtype == "bf16" else 1.5e-3
        if format.endswith("-fp8e4m3"):  # tensor cores cut off what they sum up
            most = max(most, 2.5e-3)
        assert bool((error <= most * size + 1e-6).all()), (op, format, n, k, skew, m)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("format", QUANTIZED + FORMATS)
def test_every_op_shape_and_skew_is_within_the_bound(format, op):
    dtypes = ("bf16", "fp16") if torch.cuda.get_device_capability() >= (8, 0) else ("fp16",)
    for (i, skew), (j, m) in product(enumerate(SKEWS), enumerate((0, 1, 9, 70, 300))):
        n, k = SHAPES[(i + j) % len(SHAPES)]
        check(op, format, n, k, skew, dtypes[(i + j) % len(dtypes)], m)


@pytest.mark.parametrize("format", ["mxfp4-fp8e4m3", "int4g128"])
def test_ten_thousand_random_routings_give_no_wrong_row(format):
    generator = torch.Generator(device="cuda").manual_seed(3)
    count, n, k, dtype = 24, 64, 128, torch.float16
    weights = [drawn(format, n, k, generator, dtype) for _ in range(count)]
    packed = pack_experts(weights, layout_on(torch.device("cuda"), format, "moe"), dtype)
    dense = torch.stack([w.dequantize(torch.float32) for w in weights])
    x = torch.randn(96, k, generator=generator, device="cuda").to(dtype)
    multiplied = requantized(x, QuantFormat.parse(format).activation)
    every = torch.einsum("mk,enk->men", multiplied.float(), dense)
    worst = torch.zeros((), device="cuda")
    for number in range(10_000):
        m, top_k = 1 + number % 96, 1 + number % 7
        skew = torch.rand(count, generator=generator, device="cuda") * (number % 5)
        scores = torch.rand(m, count, generator=generator, device="cuda") + skew
        ids = scores.topk(top_k, dim=1).indices
        out = humming.moe_gemm(x[:m], packed, ids=ids)
        wanted = every[:m].gather(1, ids[..., None].expand(-1, -1, n))
        error = (out.float() - wanted).norm(dim=-1) / wanted.norm(dim=-1)
        worst = torch.maximum(worst, error.max())
    assert float(worst) < 2e-3


@pytest.mark.parametrize("name", [*GATED, *PLAIN])
def test_activations_and_sums_are_those_of_torch(name):
    from humming.jit.cuda import experts_around

    own = ExpertActivation(name)
    for rows, width, dtype in product((1, 37), (8, 100, 2880), (torch.float16,)):
        x = (3 * torch.randn(rows, width * (2 if own.gated else 1), device="cuda")).to(dtype)
        out = experts_around.activate(x, name, own.gated, own.alpha, own.limit)
        torch.testing.assert_close(out, own.of_torch(x), atol=2e-3, rtol=2e-3)
    parts = torch.randn(9, 4, 100, device="cuda").half()
    weights = torch.rand(9, 4, device="cuda")
    out = experts_around.combine(parts, weights)
    wanted = combine(parts.cpu(), weights.cpu())
    torch.testing.assert_close(out.cpu(), wanted, atol=2e-3, rtol=2e-3)
    assert all(torch.equal(experts_around.combine(parts, weights), out) for _ in range(20))


RULES = (
    RouterRule(8),
    RouterRule(3, normalized=False),
    RouterRule(6, "sigmoid", scale=2.5, groups=8, top_groups=4),
    RouterRule(6, "softmax", False, groups=8, top_groups=3, group_score="max"),
    RouterRule(4, "chosen_softmax", False),
    RouterRule(1, "chosen_sigmoid", False),
)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("experts", [16, 128, 384])
def test_experts_are_chosen_as_torch_chooses_them(rule, experts):
    generator = torch.Generator(device="cuda").manual_seed(experts)
    for m, dtype in product((0, 1, 33), (torch.float32, torch.float16)):
        logits = torch.randn(m, experts, generator=generator, device="cuda").to(dtype)
        added = None
        if rule.scoring == "sigmoid":
            added = torch.rand(experts, generator=generator, device="cuda")
        ids, weights = route(logits, rule, added)
        wanted_ids, wanted = route_by_torch(logits.float(), rule, added)
        same = (ids == wanted_ids).all(dim=1)
        assert int((~same).sum()) <= m // 16  # scores that are equal but for their rounding
        torch.testing.assert_close(weights[same], wanted[same], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("format", ["int4g128", "mxfp4-fp8e4m3"])
def test_a_whole_block_is_captured_without_the_host(format):
    generator = torch.Generator(device="cuda").manual_seed(5)
    up = torch.randn(8, 256, 128, generator=generator, device="cuda").half() / 8
    down = torch.randn(8, 128, 128, generator=generator, device="cuda").half() / 8
    module = humming.HummingExperts.from_float(up, down, format, top_k=2).prepare()
    x = torch.randn(33, 128, generator=generator, device="cuda").half()
    ids = ids_of("uniform", 33, 2, 8).cuda()
    weights = torch.rand(33, 2, generator=generator, device="cuda")
    with torch.inference_mode():
        wanted = module(x, ids, weights).clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = module(x, ids, weights)
        for seed in range(3):
            ids.copy_(ids_of("few" if seed else "uniform", 33, 2, 8, seed))
            graph.replay()
            torch.cuda.synchronize()
            if seed == 0:
                assert torch.equal(out, wanted)
            assert torch.equal(out, module(x, ids, weights))


@pytest.mark.parametrize("format", ["int8-int8", "mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128"])
def test_gates_are_applied_by_the_launch_that_quantizes(format):
    """A whole block against its second product of what torch makes of the first one's result."""
    generator = torch.Generator(device="cuda").manual_seed(9)
    count, top_k, h, width, dtype = 6, 2, 200, 88, torch.float16
    up = [drawn(format, 2 * width, h, generator, dtype) for _ in range(count)]
    down = [drawn(format, h, width, generator, dtype) for _ in range(count)]
    stacks = [ExpertStack.of(own, None, dtype, top_k, count) for own in (up, down)]
    block = humming.HummingExperts(*stacks).prepare()
    for m in (1, 9, 300):
        x = torch.randn(m, h, generator=generator, device="cuda").to(dtype)
        ids = ids_of("others", m, top_k, count).cuda()
        weights = torch.rand(m, top_k, generator=generator, device="cuda")
        with torch.inference_mode():
            out = block(x, ids, weights)
            gate, by = humming.moe_gemm(x, stacks[0].packed(), ids=ids).double().chunk(2, -1)
        middle = (torch.nn.functional.silu(gate) * by).float().flatten(0, 1)
        middle = requantized(middle, QuantFormat.parse(format).activation).double()
        parts = torch.zeros(m * top_k, h, dtype=torch.float64, device="cuda")
        for expert, weight in enumerate(down):
            mine = ids.flatten() == expert
            parts[mine] = middle[mine] @ weight.dequantize().T
        wanted = (parts.view(m, top_k, h) * weights.double()[..., None]).sum(1)
        assert float((out.double() - wanted).norm()) <= 4e-3 * float(wanted.norm()), m


def test_rows_of_sorting_are_a_stable_order():
    from humming.jit.cuda.experts_around import tiles_of

    for experts, m, top_k in ((5, 1, 1), (256, 300, 8), (512, 4096, 8), (900, 77, 3)):
        ids = torch.randint(-1, experts + 1, (m, top_k), device="cuda")
        rows = Rows.indexed(ids)
        places, tiles, most = tiles_of(rows, experts, 16)
        order = rows.made["order"]
        flat = torch.where((ids < 0) | (ids >= experts), experts, ids).flatten()
        assert torch.equal(order.long(), flat.sort(stable=True).indices)
        listed = tiles[tiles[:, 2] > 0]
        assert int(listed[:, 2].sum()) == m * top_k
        assert len(tiles) == most
        assert bool((tiles[:, 3] == len(listed)).all())
        assert places is not None
        whole = torch.arange(16, device="cuda") < tiles[: len(listed), 2:3]
        assert torch.equal(places[: len(listed)][whole], order)
        for expert, first, count, _ in listed[:: max(1, len(listed) // 50)].tolist():
            own = flat[order[first : first + count].long()]
            assert bool((own == (experts if expert < 0 else expert)).all())


def test_weights_past_2_to_the_31_elements_are_found():
    """Of 640 experts only the last one's codes are not the first's."""
    generator = torch.Generator(device="cuda").manual_seed(6)
    count, n, k = 640, 1024, 4096
    assert count * n * k > 2**31
    first, last = (drawn("int4g128", n, k, generator, torch.float16) for _ in range(2))
    one = pack_experts([first, last], CUDA_LAYOUT, torch.float16)
    order = torch.zeros(count, dtype=torch.int64, device="cuda")
    order[-1] = 1
    parts = {name: tensor.index_select(0, order) for name, tensor in one.tensors.items()}
    packed = replace(one.with_tensors(parts), experts=count)
    for m in (1, 9, 200):
        x = torch.randn(m, k, generator=generator, device="cuda").half()
        ids = torch.full((m, 2), count - 1, device="cuda")
        ids[:, 1] = torch.arange(m, device="cuda") % (count - 1)
        out = humming.moe_gemm(x, packed, ids=ids).double()
        for place, weight in enumerate((last, first)):
            wanted = x.double() @ weight.dequantize().T
            error = (out[:, place] - wanted).norm(dim=1) / wanted.norm(dim=1)
            assert float(error.max()) < 2e-3
