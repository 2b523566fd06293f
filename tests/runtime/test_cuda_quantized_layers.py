"""HummingLinear on a GPU with quantized activations: what tensor cores multiply as it is, and what
they do not, which is rounded and multiplied in 16 bits; never refused."""

from dataclasses import replace

import pytest
import torch
from cuda_layers import random
from torch import nn

import humming
from humming.quantize import quantize
from humming.quantize.activations import requantized
from humming.reference import matmul_float64
from humming.spec.formats import QuantFormat

pytestmark = pytest.mark.gpu

FORMATS = (
    *("int8-int8", "int4-int8", "int4g128-int8", "uint4g128z-int8", "int4-int4"),
    *("int4-fp8e4m3", "int4g128-fp8e4m3", "mxfp4-fp8e4m3", "fp8e4m3-fp8e4m3"),
    *("fp8e4m3b128-fp8e4m3g128", "mxfp4-mxfp4", "mxfp8e4m3-mxfp8e4m3"),
    *("nvfp4-nvfp4", "nvfp4-fp8e4m3", "int4g16-int8", "uint8g64z-int8", "fp8e3m4-fp8e3m4"),
    *("fp8e4m3-fp8e4m3t", "int4g128-fp8e4m3t", "nvfp4-fp8e4m3t"),
)


def _layer(format, n, k, dtype=torch.bfloat16, act_order=False):
    torch.manual_seed(n + k)
    q = quantize(torch.randn(n, k, device="cuda", dtype=dtype) * 0.1, format)
    if not QuantFormat.parse(format).activation.dynamic:
        q = replace(q, input_scale=torch.tensor([0.006], device="cuda"))
    if act_order:
        q = replace(q, permutation=torch.randperm(k, device="cuda").to(torch.int32))
    return humming.HummingLinear.from_quantized(q, torch.randn(n, device="cuda").to(dtype), dtype)


def assert_right(layer, x, y):
    """The error against float64 is at most 1.1 x that of torch's matmul on the same quantized x and
    weights, each rounded once."""
    q, bias = layer.quantized(), layer.bias
    expected = matmul_float64(x, q, bias)
    activation = QuantFormat.parse(q.format).activation
    rounded = requantized(x, activation, q.permutation, q.input_scale).to(x.dtype)
    theirs = nn.functional.linear(rounded, q.dequantize(x.dtype), bias.to(x.dtype))
    assert bool(y.isfinite().all())
    limit = 1.1 * float((theirs.double() - expected).norm()) + 1e-9 * float(expected.norm())
    assert float((y.double() - expected).norm()) <= limit


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_are_as_good_as_torchs(format):
    for n, k, act_order in ((1000, 520, False), (264, 1028, True)):
        layer = _layer(format, n, k, act_order=act_order)
        layer.prepare()
        with torch.inference_mode():
            for m in (1, 16, 33, 100, 700):
                x = random(m, k)
                assert_right(layer, x, layer(x))
            assert layer(random(0, k)).shape == (0, n)
            twice = random(2, 8, k)
            assert_right(layer, twice.view(-1, k), layer(twice).view(-1, n))


@pytest.mark.parametrize("format", ["int4g128-int8", "nvfp4-nvfp4", "fp8e4m3b128-fp8e4m3g128"])
def test_a_graph_replays_a_layer_and_its_state_is_whole(format):
    layer = _layer(format, 520, 384)
    layer.prepare()
    state, x, graph = layer.state_dict(), random(33, 384), torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        y = layer(x)
    for _ in range(3):
        x.copy_(random(33, 384))
        graph.replay()
        torch.cuda.synchronize()
        assert_right(layer, x, y)
    other = _layer(format, 520, 384)
    other.load_state_dict(state)
    with torch.inference_mode():
        assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("format", ["int8-int8", "mxfp4-fp8e4m3"])
def test_a_function_and_a_compiled_call_give_what_the_layer_does(format):
    layer, x = _layer(format, 264, 512), random(20, 512)
    packed = humming.quantize.pack(layer.quantized(), layer.spec.layout, torch.bfloat16)
    with torch.inference_mode():
        y = layer(x)
        assert torch.equal(humming.gemm(x, packed, layer.bias), y)
        assert torch.equal(torch.compile(layer, fullgraph=True)(x), y)
