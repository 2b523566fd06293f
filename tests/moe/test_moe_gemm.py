"""`humming.moe_gemm` on the CPU against float64: every op, formats of every kind, odd shapes, every
skew of the routing."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from moe_cases import SKEWS, answer, experts, ids_of

import humming
from humming.errors import LayoutError
from humming.moe.router import RouterRule
from humming.quantize import unpack_experts
from humming.spec.dtypes import FLOAT_ACTIVATIONS

FORMATS = ("int4g128", "int4-int8")
SLOW = (
    "mxfp4",
    "int8-int8",
    "uint4g128z",
    "fp8e4m3",
    "nvfp4",
    "int3g64",
    "int1g32",
    "int4",
    "uint2g32zf",
    "uint5zf",
    "fp6e3m2",
    "fp8e4m3t",
    "fp8e4m3b128",
    "mxint8",
)
SHAPES = ((40, 72), (33, 640), (704, 96))
OPS = ("indexed", "own-rows", "contiguous", "masked")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def check(op: str, format: str, n: int, k: int, skew: str, dtype: torch.dtype, m: int) -> None:
    count, top_k = 5, 3
    of = experts(format, count, n, k, act_order=op == "own-rows" and format == "int4g128")
    ids = ids_of(skew, m, top_k, count)
    chosen = torch.where((ids >= 0) & (ids < count), ids, -1)
    generator = torch.Generator().manual_seed(m)
    if op in ("indexed", "own-rows"):
        shape = (m, k) if op == "indexed" else (m, top_k, k)
        x = torch.randn(shape, generator=generator).to(dtype)
        out = humming.moe_gemm(x, of.packed, ids=ids, bias=of.bias).view(-1, n)
        flat = x.repeat_interleave(top_k, 0) if op == "indexed" else x.view(-1, k)
        wanted, bound = answer(flat, of, chosen.flatten(), bias=True)
    else:
        counts = torch.bincount(chosen[chosen >= 0].flatten(), minlength=count)
        sorted_ids = torch.repeat_interleave(torch.arange(count), counts)
        flat = torch.randn(int(counts.sum()), k, generator=generator).to(dtype)
        wanted, bound = answer(flat, of, sorted_ids, bias=True)
        if op == "contiguous":
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
            out = humming.moe_gemm(flat, of.packed, offsets=offsets, bias=of.bias)
        else:
            capacity = max(int(counts.max()), 1) + 1
            padded = torch.full((count, capacity, k), float("nan"), dtype=dtype)
            inside = torch.arange(capacity) < counts[:, None]
            padded[inside] = flat
            out = humming.moe_gemm(padded, of.packed, counts=counts, bias=of.bias)[inside]
    assert out.dtype == dtype
    assert bool(((out.double() - wanted).abs() <= bound).all()), (op, format, n, k, skew)


@pytest.mark.parametrize("format", FORMATS)
def test_every_op_is_within_the_bound(format):
    for number, (op, skew) in enumerate(product(OPS, SKEWS)):
        n, k = SHAPES[number % len(SHAPES)]
        check(op, format, n, k, skew, torch.bfloat16, m=(7, 7, 0, 8)[number % 4])


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS + SLOW)
@pytest.mark.parametrize("dtype", FLOAT_ACTIVATIONS)
def test_every_op_and_shape_and_skew_is_within_the_bound(format, dtype):
    for op, skew, (n, k), m in product(
        OPS, SKEWS, (*SHAPES, (1856, 640), (720, 33), (48, 2880)), (0, 1, 40)
    ):
        check(op, format, n, k, skew, DTYPES[dtype], m)


def test_a_rank_has_its_experts_and_leaves_the_others_zero():
    of = experts("int4g128", 6, 40, 72)
    ids, x = ids_of("uniform", 9, 3, 6), torch.randn(9, 72)
    whole = humming.moe_gemm(x, of.packed, ids=ids)
    first = humming.moe_gemm(x, of.packed.slice(0, 2), ids=ids)
    last = humming.moe_gemm(x, of.packed.slice(2, 6), ids=ids, first_expert=2)
    assert bool((first[ids >= 2] == 0).all())
    torch.testing.assert_close(first + last, whole)  # configs may differ


def test_a_row_does_not_depend_on_the_others_nor_on_their_order():
    of = experts("int4g128", 5, 40, 96)
    x, ids = torch.randn(64, 96), ids_of("uniform", 64, 2, 5)
    order = torch.randperm(64)
    out = humming.moe_gemm(x, of.packed, ids=ids)
    assert torch.equal(humming.moe_gemm(x[order], of.packed, ids=ids[order]), out[order])


def test_a_batch_invariant_row_has_the_same_bits_whatever_m():
    of = experts("int4g128", 5, 40, 72)
    x, ids = torch.randn(200, 72), ids_of("uniform", 200, 2, 5)
    humming.set_batch_invariant(True)
    try:
        out = humming.moe_gemm(x, of.packed, ids=ids)
        for m in (1, 17):
            assert torch.equal(humming.moe_gemm(x[:m], of.packed, ids=ids[:m]), out[:m])
    finally:
        humming.set_batch_invariant(False)


@pytest.mark.slow
def test_a_block_is_traced_whole():
    up, down = torch.randn(4, 64, 32), torch.randn(4, 32, 32)
    experts_ = humming.HummingExperts.from_float(up, down, "int4g32", top_k=2)
    block = humming.HummingMoE(torch.randn(4, 32), experts_, RouterRule(2))
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    x = torch.randn(5, 32)
    with torch.no_grad():
        assert torch.equal(compiled(x), block(x))


def test_packed_experts_come_back():
    of = experts("uint4g128z", 4, 40, 300, act_order=True)
    for mine, theirs in zip(unpack_experts(of.packed), of.weights, strict=True):
        assert torch.equal(mine.codes, theirs.codes)
        assert torch.equal(mine.scales, theirs.scales)
        assert mine.permutation is not None
        assert torch.equal(mine.permutation, theirs.permutation)


def test_weights_past_2_to_the_31_elements_are_found():
    """Of 1024 experts only the last one's codes are not zero."""
    count, n, k = 1024, 1024, 2080
    assert count * n * k > 2**31
    of = experts("int1g32", 1, n, k)
    codes = torch.zeros(count, *of.packed.codes.shape[1:], dtype=torch.int32)
    codes[-1] = of.packed.codes[0]
    scales = of.packed.scales.expand(count, -1, -1, -1).contiguous()
    big = replace(of.packed, codes=codes, scales=scales, experts=count)
    x = torch.randn(2, k)
    out = humming.moe_gemm(x, big, ids=torch.tensor([[count - 1], [0]]))
    wanted, bound = answer(x[:1], of, torch.zeros(1), bias=False)
    assert bool(((out[0].double() - wanted).abs() <= bound).all())
    assert bool((out[1] != out[0]).any())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": torch.randn(6, 71)}, "x must be"),
        ({"x": torch.randn(6, 72, dtype=torch.float64)}, "fp32, bf16 or fp16"),
        ({"ids": None}, "one of ids"),
        ({"ids": torch.zeros(6)}, "ids must be int32"),
        ({"ids": torch.zeros(5, 2, dtype=torch.int32)}, "x must be"),
        ({"bias": torch.zeros(40)}, "bias must be"),
        ({"counts": torch.zeros(5, dtype=torch.int32)}, "one of ids"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(change, says):
    of = experts("int4g128", 5, 40, 72)
    call = {"x": torch.randn(6, 72), "ids": ids_of("uniform", 6, 2, 5), **change}
    with pytest.raises(LayoutError, match=says):
        humming.moe_gemm(call.pop("x"), of.packed, **call)
