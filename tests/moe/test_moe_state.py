"""The state of HummingExperts: saved, loaded and checked as that of a HummingLinear."""

import pickle

import pytest
import torch

import humming
from humming.errors import LayoutError
from humming.moe.stack import ExpertStack
from humming.quantize import pack_experts
from humming.quantize.drawn import drawn
from humming.spec.layouts import CPU_LAYOUT, CUDA_LAYOUT

E, H, WIDTH = 4, 128, 64


def made(device="cpu", format="int4g32", bias=True):
    draw = torch.Generator().manual_seed(1)
    shapes = ((E, 2 * WIDTH, H), (E, H, WIDTH), (E, 2 * WIDTH), (E, H))
    up, down, *biases = (torch.randn(shape, generator=draw).to(device) for shape in shapes)
    return humming.HummingExperts.from_float(
        up, down, format, "silu", *(biases if bias else ()), top_k=2
    )


def called(experts):
    x = torch.randn(3, H, generator=torch.Generator().manual_seed(2))
    ids = torch.tensor([[0, 1], [3, 2], [1, 1]])
    with torch.inference_mode():
        return experts(x, ids, torch.ones(3, 2))


@pytest.mark.parametrize("format", ["int4g32", "uint4g32z", "nvfp4"])
def test_experts_on_meta_become_those_that_are_loaded(format):
    real, empty = made(format=format), made("meta", format)
    found = empty.load_state_dict(real.state_dict(), assign=True)
    assert not found.missing_keys and not found.unexpected_keys
    assert not [name for name, buffer in empty.named_buffers() if buffer.is_meta]
    assert torch.equal(called(empty), called(real))


def test_experts_made_empty_are_filled_again():
    real = made(format="uint4g32z")
    empty = made(format="uint4g32z").to("meta").to_empty(device="cpu")
    empty.load_state_dict(real.state_dict())
    for ours, theirs in zip(empty.up.quantized(), real.up.quantized(), strict=True):
        assert torch.equal(ours.dequantize(), theirs.dequantize())


@pytest.mark.parametrize(
    ("key", "change", "says"),
    [
        ("up.scales", lambda t: t[:3], r"up: scales must be those of 4 experts, but got \[3, "),
        ("up.scales", lambda t: t.repeat(2, 1, 1), "scales must be those of 4 experts"),
        ("down.codes", lambda t: t[:1], "down: codes must be those of 4 experts"),
        ("up.scales", lambda t: t[:, :7], r"scales of int4g32 codes \[128, 128\]"),
        ("up.bias", lambda _: torch.zeros(E, 7), r"bias must be fp32, bf16 or fp16 \[4, 128\]"),
        ("down.bias", lambda t: t.double(), "but got float64"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(key, change, says):
    experts = made()
    state = experts.state_dict()
    with pytest.raises(RuntimeError, match=says):
        experts.load_state_dict({**state, key: change(state[key])})
    for name, tensor in experts.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_bias_of_another_shape_or_type_is_refused():
    weights = [drawn("int4g32", 32, 64, torch.Generator().manual_seed(1)) for _ in range(2)]
    for bias in (torch.zeros(2, 31), torch.zeros(2, 32, dtype=torch.float64)):
        with pytest.raises(LayoutError, match=r"bias must be fp32, bf16 or fp16 \[2, 32\]"):
            ExpertStack.of(weights, bias, torch.float32, 1)


def test_a_bias_alone_is_loaded():
    experts = made()
    codes = experts.up.packed_codes.clone()
    told = experts.load_state_dict({"up.bias": torch.zeros(E, 2 * WIDTH)}, strict=False)
    assert "up.codes" in told.missing_keys and "up.bias" not in told.missing_keys
    assert not experts.up.bias.any() and torch.equal(experts.up.packed_codes, codes)


def test_a_bias_has_the_type_of_its_module():
    experts = made().to(torch.bfloat16)
    assert experts.up.bias.dtype == torch.float32  # which holds bf16 exactly
    assert experts.state_dict()["up.bias"].dtype == torch.bfloat16
    linear = humming.convert(torch.nn.Linear(64, 32), "int4g32").to(torch.bfloat16)
    assert linear.state_dict()["bias"].dtype == torch.bfloat16


def test_a_pickle_of_another_device_is_packed_for_this_one():
    draw = torch.Generator().manual_seed(1)
    weights = [drawn("int4g32", 32, 64, draw, torch.bfloat16) for _ in range(2)]
    theirs = ExpertStack(pack_experts(weights, CUDA_LAYOUT, torch.bfloat16), top_k=1)
    assert theirs.spec.layout == CUDA_LAYOUT
    ours = pickle.loads(pickle.dumps(theirs))
    assert ours.spec.layout == CPU_LAYOUT
    for made, weight in zip(ours.quantized(), weights, strict=True):
        assert torch.equal(made.dequantize(), weight.dequantize())


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_scales_that_are_no_numbers_are_refused(wrong):
    experts = made()
    state = experts.state_dict()
    scales = state["down.scales"].clone()
    scales[3, 5, 0] = wrong
    with pytest.raises(RuntimeError, match=r"down: `isfinite\(scales\)` must hold"):
        experts.load_state_dict({**state, "down.scales": scales})
