"""HummingLinear on a GPU with weights of other formats: numbers, act-order, odd k, graphs."""

from dataclasses import replace

import pytest
import torch
from cuda_layers import DTYPES, assert_right, random
from torch import nn

import humming
from humming.quantize import quantize

pytestmark = pytest.mark.gpu

FORMATS = ("int3g64", "int8", "uint4g128z", "uint4g64zf", "mxfp4", "nvfp4", "fp8e4m3b128")


def _layer(format, n, k, dtype, act_order=False):
    torch.manual_seed(n + k)
    q = quantize(torch.randn(n, k, device="cuda", dtype=dtype) * 0.1, format)
    if act_order:
        q = replace(q, permutation=torch.randperm(k, device="cuda").to(torch.int32))
    return humming.HummingLinear.from_quantized(q, torch.randn(n, device="cuda").to(dtype), dtype)


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_are_as_good_as_torchs(format):
    shapes = ((1000, 520, False), (1024, 1028, True))
    for dtype, (n, k, act_order) in zip(DTYPES, shapes, strict=True):
        layer = _layer(format, n, k, dtype, act_order)
        layer.prepare()
        with torch.inference_mode():
            for m in (1, 7, 16, 33, 100):
                x = random(m, k, dtype=dtype)
                assert_right(layer, x, layer(x))


@pytest.mark.parametrize("format", ["int3g64", "nvfp4", "uint4g128z"])
def test_a_layer_moves_and_is_saved(format):
    layer = _layer(format, 520, 264, torch.bfloat16, act_order=True)
    before = layer.quantized()
    there = layer.cpu()
    assert torch.equal(there.quantized().dequantize(), before.to("cpu").dequantize())
    state = there.cuda().state_dict()
    linear = nn.Linear(264, 520, dtype=torch.bfloat16, device="cuda")
    other = humming.HummingLinear.from_linear(linear, format)
    assert "permutation" in state
    other = humming.HummingLinear.from_quantized(before, layer.bias, torch.bfloat16)
    other.load_state_dict(state)
    x = random(5, 264)
    assert torch.equal(other(x), there.cuda()(x))


@pytest.mark.parametrize("format", ["int2g128", "fp8e4m3", "nvfp4"])
def test_a_graph_replays_a_layer(format):
    layer = _layer(format, 1000, 520, torch.bfloat16, act_order=True)
    layer.prepare()
    for m in (1, 16, 300):
        x, graph = random(m, 520), torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            y = layer(x)
        for _ in range(3):
            x.copy_(random(m, 520))
            graph.replay()
            torch.cuda.synchronize()
            assert_right(layer, x, y)
