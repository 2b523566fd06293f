"""A second call of the same shape takes a shorter way; what must not go that way is still seen."""

import copy
import threading

import pytest
import torch
from torch import nn

from humming import HummingLinear
from humming.errors import LayoutError
from humming.quantize import quantize


def make(n=48, k=128, bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    linear = nn.Linear(k, n, bias=bias, dtype=dtype)
    return HummingLinear.from_linear(linear, "int4g128"), linear


def expected(linear, x):
    w = quantize(linear.weight.detach(), "int4g128").dequantize(torch.float32)
    bias = None if linear.bias is None else linear.bias.detach().float()
    return nn.functional.linear(x.float(), w, bias)


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("shape", [(128,), (1, 128), (2, 3, 128), (0, 128), (2, 0, 128), (17, 128)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_second_call_says_what_the_first_said(shape, bias):
    layer, linear = make(bias=bias)
    for seed in range(3):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        y = layer(x)
        assert y.shape == (*shape[:-1], 48) and y.dtype == x.dtype
        torch.testing.assert_close(y, expected(linear, x), rtol=1e-4, atol=1e-4)
    assert len(layer._warm) == 1


def test_strided_rows_and_other_strides():
    layer, linear = make()
    wide = torch.randn(4, 256)
    for x in (wide[:, :128], wide[:, ::2], wide[:, 128:], torch.randn(128, 4).T):
        for _ in range(2):
            torch.testing.assert_close(layer(x), expected(linear, x), rtol=1e-4, atol=1e-4)
        x = x.contiguous()
        torch.testing.assert_close(layer(x), expected(linear, x), rtol=1e-4, atol=1e-4)


def test_a_negated_view_is_read_as_what_it_says():
    layer, linear = make()
    x = torch.randn(2, 128)
    layer(x)
    flipped = torch._neg_view(x)
    assert flipped.is_neg()
    torch.testing.assert_close(layer(flipped), expected(linear, -x), rtol=1e-4, atol=1e-4)


def test_wrong_calls_still_get_their_sentence():
    layer, _ = make()
    x = torch.randn(2, 128)
    layer(x)
    layer(x)
    with pytest.raises(LayoutError, match="shape"):
        layer(torch.randn(2, 64))
    with pytest.raises(LayoutError, match="fp32, bf16 or fp16"):
        layer(x.double())
    with torch.inference_mode(False), pytest.raises(LayoutError, match="no backward"):
        layer(torch.randn(2, 128, requires_grad=True))


def test_a_buffer_that_is_replaced_or_given_other_memory_is_seen():
    layer, _ = make()
    other, linear = make()
    x = torch.randn(1, 128)
    layer(x)
    other.packed_scales.mul_(2.0)
    doubled = other(x) - linear.bias
    layer.packed_scales = other.packed_scales
    torch.testing.assert_close(layer(x) - linear.bias, doubled)
    layer(x)
    layer.packed_scales.data = layer.packed_scales.data.double()
    with pytest.raises(LayoutError, match="leave its buffers alone"):
        layer(x)
    again, _ = make()
    again(x)
    again.bias.data = torch.zeros(48)
    again(x)
    again.bias.data = again.bias.data.half()
    assert torch.isfinite(again(x)).all()


def test_a_bias_that_comes_or_goes_is_seen():
    layer, linear = make()
    x = torch.randn(1, 128)
    with_bias = layer(x)
    layer.bias = None
    torch.testing.assert_close(layer(x), with_bias - linear.bias)


def test_other_threads_have_scratch_of_their_own():
    layer, linear = make(n=256)
    layer(torch.randn(3, 128))
    wrong = []

    def work(seed):
        with torch.inference_mode():
            for step in range(200):
                x = torch.randn(3, 128, generator=torch.Generator().manual_seed(seed * 1000 + step))
                if not torch.allclose(layer(x), expected(linear, x), rtol=1e-4, atol=1e-4):
                    wrong.append((seed, step))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_copies_and_moved_layers_begin_anew():
    layer, linear = make()
    x = torch.randn(1, 128)
    layer(x)
    for other in (copy.deepcopy(layer), copy.deepcopy(layer).half().float()):
        assert not other._warm
        torch.testing.assert_close(other(x), expected(linear, x), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_gives_what_a_linear_layer_gives(to, given):
    layer, linear = make()
    x = torch.randn(3, 128).to(given)
    for _ in range(2):
        with torch.autocast("cpu", dtype=to):
            y, like = layer(x), linear(x)
        assert y.dtype == like.dtype == to
        torch.testing.assert_close(y.float(), expected(linear, x.to(to)), rtol=2e-2, atol=2e-2)
        assert layer(x).dtype == given  # and not beyond
    with torch.autocast("cpu", dtype=to), torch.autocast("cpu", enabled=False):
        assert layer(x).dtype == given


def test_autocast_leaves_doubles_and_integers_alone():
    layer, _ = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for x in (torch.randn(1, 128).double(), torch.ones(1, 128, dtype=torch.int64)):
            with pytest.raises(LayoutError, match="fp32, bf16 or fp16"):
                layer(x)


def test_autocast_in_a_compiled_model():
    layer, _ = make()
    torch._dynamo.reset()  # the limit of compilations is one for all layers
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(3, 128)
    with torch.no_grad(), torch.inference_mode(False):
        x = x.clone()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert compiled(x).dtype == torch.bfloat16
        assert compiled(x).dtype == torch.float32
