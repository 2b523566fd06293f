"""State of a layer on a GPU: moving, converting, copying, loading, memory. See test_cuda_linear."""

import copy
import gc
import pickle

import pytest
import torch
from cuda_layers import DTYPES, assert_right, layer_of, random
from torch import nn

import humming
from humming.errors import LayoutError

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES)
def test_moving_there_and_back_keeps_the_state(dtype):
    layer = layer_of(1000, 544, dtype=dtype, device="cpu")
    state = layer.state_dict()
    for move in (nn.Module.cuda, lambda m: m.to("cpu"), lambda m: m.to("cuda:0"), nn.Module.cuda):
        move(layer)
        kind = layer.packed_codes.device.type
        assert layer.spec.layout == {"cpu": "cpu_n16k8", "cuda": "cuda_n16k64"}[kind]
        for key, value in layer.state_dict().items():
            assert value.device.type == (kind if key != "format" else "cpu")
            assert torch.equal(value.cpu(), state[key])
    x = random(5, 544, dtype=dtype)
    assert_right(layer, x, layer(x))


def test_a_layer_of_another_type_is_converted_or_refused_whole():
    layer = layer_of(1000, 544, dtype=torch.float32, device="cpu")
    with pytest.raises(LayoutError, match="must be bf16 or fp16, but got fp32"):
        layer.cuda()
    assert layer(torch.zeros(1, 544)).shape == (1, 1000)
    layer.to("cuda", torch.bfloat16).half()
    x = random(5, 544, dtype=torch.float16)
    assert_right(layer, x, layer(x))
    model = nn.Sequential(nn.Linear(64, 8), nn.Linear(64, 8)).cuda()
    with pytest.raises(LayoutError, match="but got fp32"):
        humming.convert(model)
    assert [type(m) for m in model] == [nn.Linear, nn.Linear]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_gives_the_same_bits(copied):
    layer, x = layer_of(), random(3, 520)
    y = layer(x)
    assert torch.equal(copied(layer)(x), y)


def test_a_layer_made_on_meta_is_filled_on_the_gpu():
    source, x = layer_of(1000, 544), random(3, 544)
    for fill in (
        lambda m: m.load_state_dict(source.state_dict(), assign=True),
        lambda m: m.to_empty(device="cuda").load_state_dict(source.state_dict()),
    ):
        with torch.device("meta"):
            layer = humming.HummingLinear(544, 1000, dtype=torch.bfloat16)
        fill(layer)
        assert torch.equal(layer(x), source(x))


def test_what_does_not_fit_gets_a_sentence():
    layer = layer_of()
    layer(random(1, 520))
    for x, sentence in (
        (torch.zeros(2, 520, dtype=torch.bfloat16), "x on cpu"),
        (random(2, 520, dtype=torch.float32), "x must be bf16"),
        (random(2, 520, dtype=torch.float16), "x must be bf16"),
        (random(2, 512), "x.shape"),
    ):
        with pytest.raises(LayoutError, match=sentence):
            layer(x)


def test_odd_sizes_are_served_on_both_devices():
    model = nn.Sequential(nn.Linear(40, 36), nn.Linear(36, 63)).to("cuda", torch.bfloat16)
    humming.convert(model)
    assert [type(m) for m in model] == [humming.HummingLinear] * 2
    x = random(3, 40)
    for layer in model:
        y = layer(x)
        assert_right(layer, x, y)
        moved = copy.deepcopy(layer).cpu()
        torch.testing.assert_close(moved(x.cpu()), y.cpu(), rtol=2e-2, atol=2e-2)
        x = y


def test_memory_after_conversion_is_the_packed_weights():
    gc.collect()
    before = torch.cuda.memory_allocated()
    model = nn.Sequential(
        *(nn.Linear(2048, 2048, bias=False, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    )
    humming.convert(model)
    gc.collect()
    packed = sum(layer.packed_codes.nbytes + layer.packed_scales.nbytes for layer in model)
    assert torch.cuda.memory_allocated() - before <= 1.02 * packed


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_gpu_serves_its_own_layer():
    for index in (1, 0):
        device = torch.device("cuda", index)
        layer = layer_of(device="cpu", k=544).to(device)
        for m in (1, 40):
            x = random(m, 544).to(device)
            assert_right(layer, x, layer(x))
    with pytest.raises(LayoutError, match="on one device"):
        layer(random(1, 544).to("cuda:1"))
