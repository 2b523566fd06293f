"""HummingLinear as a module: numbers, state, copies, conversions, compile, telling.

Tables: test_binding.
"""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn

import humming
from humming import HummingLinear
from humming.errors import FormatError, LayoutError, LegalityError
from humming.reference import error_bound, matmul_float64

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def layer_of(n=40, k=64, bias=True, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return humming.HummingLinear.from_linear(nn.Linear(k, n, bias=bias, dtype=dtype), "int4g128")


def called():
    layer = layer_of()
    layer(torch.zeros(1, 64))
    return layer


def assert_right(layer, x, y):
    q = layer.quantized()
    error = (y.double() - matmul_float64(x, q, layer.bias)).abs()
    assert y.dtype == x.dtype
    assert bool((error <= error_bound(x, q, x.dtype, layer.bias)).all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_within_the_bound_of_float64(dtype, bias):
    layer = layer_of(130, 96, bias, dtype)
    with torch.inference_mode():
        for m in (0, 1, 3, 17):
            x = torch.randn(m, 96, dtype=dtype)
            assert_right(layer, x, layer(x))
            assert_right(layer, x, layer(x))  # the bound path too


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_takes_other_activation_types_than_its_own(dtype):
    layer = layer_of(dtype=torch.bfloat16)
    x = torch.randn(2, 64, dtype=dtype)
    assert_right(layer, x, layer(x))


def test_the_source_is_left_alone_and_nearly_agrees():
    linear = nn.Linear(256, 64)
    weight = linear.weight.clone()
    layer = humming.HummingLinear.from_linear(linear, "int4g128")
    x = torch.randn(8, 256)
    expected = linear(x).detach()
    assert torch.equal(linear.weight, weight)
    assert float((layer(x) - expected).norm() / expected.norm()) < 0.2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("called_before", [True, False])
def test_a_copy_gives_the_same_bits(copied, called_before):
    layer = layer_of()
    x = torch.randn(3, 64)
    if called_before:
        layer(x)
    other = copied(layer)
    assert torch.equal(other(x), layer(x))
    assert other.packed_codes.data_ptr() != layer.packed_codes.data_ptr()


def test_a_saved_module_and_a_state_dict_come_back(tmp_path):
    layer = layer_of(dtype=torch.bfloat16)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    state = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    assert {key: (tuple(v.shape), v.dtype) for key, v in state.items()} == {
        "codes": ((40, 32), torch.uint8),
        "format": ((8,), torch.uint8),
        "scales": ((40, 1), torch.bfloat16),
        "bias": ((40,), torch.bfloat16),
    }
    fresh = humming.HummingLinear(64, 40, dtype=torch.bfloat16)
    assert fresh.load_state_dict(state).missing_keys == []
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    assert torch.equal(fresh(x), layer(x))


@pytest.mark.parametrize("assign", [True, False])
def test_a_layer_made_on_meta_is_filled_by_a_state_dict(assign):
    source = nn.Sequential(layer_of(), nn.ReLU())
    with torch.device("meta"):
        model = nn.Sequential(humming.HummingLinear(64, 40), nn.ReLU())
    assert model[0].packed_codes.is_meta
    assert model(torch.empty(5, 64, device="meta")).shape == (5, 40)
    with pytest.raises(LayoutError, match="meta"):
        model(torch.zeros(1, 64))
    model.load_state_dict(source.state_dict(), assign=assign)
    x = torch.randn(3, 64)
    assert torch.equal(model(x), source(x))


def test_a_state_dict_that_does_not_fit_says_so():
    model = nn.Sequential(layer_of())
    x = torch.randn(1, 64)
    before = model(x)
    state = model.state_dict()
    wrong = {
        "codes must be uint8": {**state, "0.codes": state["0.codes"][:3]},
        "scales of int4g128": {**state, "0.scales": state["0.scales"].double()},
        "bias must be": {**state, "0.bias": torch.zeros(3)},
        "Missing key": {"0.codes": state["0.codes"]},
        "Unexpected key": {**state, "0.weight": torch.zeros(40, 64)},
    }
    for sentence, bad in wrong.items():
        with pytest.raises(RuntimeError, match=sentence):
            model.load_state_dict(bad)
        assert torch.equal(model(x), before)


def test_conversions_round_the_bias_and_keep_the_codes():
    layer = layer_of(seed=3)
    state, bias = layer.state_dict(), layer.bias.clone()
    x = torch.randn(2, 64)
    layer(x)
    layer.to(torch.bfloat16)
    assert layer.dtype == torch.bfloat16
    assert torch.equal(layer.bias, bias.bfloat16().float())
    assert torch.equal(layer.state_dict()["codes"], state["codes"])
    assert torch.equal(layer.state_dict()["scales"], state["scales"])
    assert layer.state_dict()["bias"].dtype == torch.bfloat16
    assert_right(layer, x, layer(x))
    assert layer.to("cpu") is layer
    assert torch.equal(layer.type(torch.float16).state_dict()["codes"], state["codes"])
    assert layer.to("meta").to_empty(device="cpu").packed_scales.dtype == torch.float32


def test_a_lazily_negated_input_is_read_as_it_counts():
    layer = called()
    x = torch.complex(torch.zeros(2, 64), torch.randn(2, 64)).conj().imag
    assert x.is_neg()
    assert torch.equal(layer(x), layer(x.clone()))


def test_swapped_buffers_are_seen():
    one, two = layer_of(seed=1), layer_of(seed=2)
    x = torch.randn(2, 64)
    one(x)
    swapped = torch.func.functional_call(one, dict(two.named_buffers()), (x,))
    assert torch.equal(swapped, two(x))


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: humming.HummingLinear.from_linear(nn.ReLU()), LayoutError, "nn.Linear"),
        (
            lambda: humming.HummingLinear.from_linear(nn.Linear(64, 4), "nf4"),
            FormatError,
            "a format is made of",
        ),
        (lambda: humming.HummingLinear(64, 4, dtype=torch.float64), LayoutError, "dtype must be"),
        (lambda: layer_of()(torch.zeros(2, 32)), LayoutError, "x.shape"),
        (lambda: layer_of()(torch.zeros(2, 64, requires_grad=True)), LayoutError, "no backward"),
        (lambda: called()(torch.zeros(2, 32)), LayoutError, "x.shape"),
        (lambda: called()(torch.zeros(())), LayoutError, "x.shape"),
        (lambda: layer_of().prepare(dtype=torch.float64), LayoutError, "x must be fp32"),
        (lambda: layer_of().prepare(m=-1), LegalityError, "0 <= m"),
        (lambda: layer_of().prepare(m="a"), LegalityError, "m must be a whole number"),
        (
            lambda: HummingLinear.from_linear(nn.Linear(64, 16).double()),
            LayoutError,
            r"the weight must be fp32, bf16 or fp16, but got float64",
        ),
        (lambda: humming.prepare(nn.ReLU()), LayoutError, "humming.convert"),
    ],
)
def test_wrong_use_gets_a_sentence(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_model_compiles_without_a_graph_break(backend, bias):
    model = nn.Sequential(layer_of(bias=bias), nn.ReLU(), layer_of(8, 40 + 24)).eval()
    model[1] = nn.Sequential(nn.ReLU(), nn.ConstantPad1d((0, 24), 0.5))
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    with torch.inference_mode():
        for m in (2, 3, 9):
            x = torch.randn(m, 64)
            assert torch.equal(compiled(x), model(x))


def test_threads_get_the_serial_result():
    layer = layer_of(200, 128)
    inputs = [torch.randn(m, 128) for m in (1, 2, 5, 8)]
    expected = [layer(x) for x in inputs]
    wrong = []

    def serve(x, y):
        wrong.extend(1 for _ in range(100) if not torch.equal(layer(x), y))

    threads = [
        threading.Thread(target=serve, args=pair) for pair in zip(inputs, expected, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_buffers_cast_behind_its_back_are_refused(dtype):
    layer = HummingLinear.from_linear(nn.Linear(128, 48, bias=False))
    x = torch.randn(2, 128)
    layer(x), layer(x)
    for buffer in layer.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(dtype)
    for _ in range(2):
        with pytest.raises(LayoutError, match="leave its buffers alone"):
            layer(x)


@pytest.mark.parametrize("break_it", [lambda t: t.to(torch.int64), lambda t: t.mT])
def test_codes_of_another_type_or_order_are_refused(break_it):
    layer = HummingLinear.from_linear(nn.Linear(128, 256))
    x = torch.randn(2, 128)
    layer(x)
    layer.packed_codes = break_it(layer.packed_codes)
    with pytest.raises(LayoutError, match="pack"):
        layer(x)


def test_forward_mode_differentiation_is_refused_like_backward():
    layer = HummingLinear.from_linear(nn.Linear(64, 16))
    x = torch.randn(1, 64)
    layer(x)
    with pytest.raises(LayoutError, match="no backward"):
        torch.func.jvp(layer, (x,), (torch.ones_like(x),))


def test_a_float_weight_is_asked_for_in_vain_and_sizes_are_checked():
    layer = HummingLinear.from_linear(nn.Linear(64, 16))
    assert not hasattr(layer, "weight")
    with pytest.raises(AttributeError, match="keeps no float weight"):
        _ = layer.weight
    for sizes in ((128, 0), (-128, 16), ("128", 16), (128.0, 16)):
        with pytest.raises(LayoutError, match=">= 1"):
            HummingLinear(*sizes)
    with pytest.raises(LayoutError, match="QuantizedTensor"):
        humming.gemm(torch.randn(1, 64), nn.Linear(64, 16).weight)
