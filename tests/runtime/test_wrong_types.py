"""What is no tensor of floats, where one belongs, is refused in a sentence: before a layer's first
call and after it, compiled, and as a bias."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch import nn

import humming
from humming.errors import LayoutError
from humming.quantize import pack

N, K = 32, 64
X = torch.ones(3, K)
NESTED = torch.nested.nested_tensor([X, X[:2]])
NO_TENSORS = {
    "list": [[1.0] * K] * 3,
    "numpy": numpy.ones((3, K), numpy.float32),
    "number": 3,
    "nothing": None,
    "text": "x",
    "tuple": (X,),
    "module": nn.Linear(K, N),
}
NOT_DENSE = {"sparse": X.to_sparse(), "nested": NESTED, "csr": X.to_sparse_csr()}


def layer_of(bias: bool = True) -> humming.HummingLinear:
    torch.manual_seed(0)
    return humming.HummingLinear.from_linear(nn.Linear(K, N, bias=bias), "int4g32")


@pytest.fixture(params=["new", "called", "compiled"])
def layer(request: pytest.FixtureRequest):
    layer = layer_of()
    with torch.inference_mode():
        if request.param != "new":
            layer(X)
    return torch.compile(layer, backend="eager") if request.param == "compiled" else layer


@pytest.mark.parametrize("name", NO_TENSORS)
def test_a_layer_takes_tensors_alone(name, layer):
    kind = type(NO_TENSORS[name]).__name__
    with torch.inference_mode(), pytest.raises(LayoutError, match=rf"x must be .* got {kind}; "):
        layer(NO_TENSORS[name])


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.complex64])
def test_a_layer_takes_floats_alone(dtype):
    assert_refused_before_and_after_a_call(X.to(dtype), "x must be fp32, bf16 or fp16, but got")


@pytest.mark.parametrize("name", NOT_DENSE)
def test_a_layer_takes_dense_tensors_alone(name):
    assert_refused_before_and_after_a_call(NOT_DENSE[name], "x must be a dense tensor")


def assert_refused_before_and_after_a_call(x: torch.Tensor, says: str) -> None:
    layer = layer_of()
    with torch.inference_mode():
        for _ in range(2):
            with pytest.raises(LayoutError, match=says):
                layer(x)
            layer(X)


@pytest.mark.parametrize("value", [*NO_TENSORS.values(), *NOT_DENSE.values()])
def test_gemm_takes_tensors_alone(value):
    q = humming.quantize(torch.randn(N, K), "int4g32")
    for weight in (q, pack(q)):
        with pytest.raises(LayoutError, match=r"x must be a (dense )?tensor"):
            humming.gemm(value, weight)
        if value is not None:
            with pytest.raises(LayoutError, match=r"bias must be a (dense )?tensor"):
                humming.gemm(X, weight, value)
    with pytest.raises(LayoutError, match="gemm takes a QuantizedTensor or a PackedWeight"):
        humming.gemm(X, value)


@pytest.mark.parametrize("value", NO_TENSORS.values())
def test_a_layer_is_made_of_quantized_weights_and_tensors_alone(value):
    q = humming.quantize(torch.randn(N, K), "int4g32")
    with pytest.raises(LayoutError, match="from_quantized takes a QuantizedTensor, but got"):
        humming.HummingLinear.from_quantized(value)
    with pytest.raises(LayoutError, match="w must be a tensor"):
        humming.quantize(value, "int4g32")
    if value is not None:
        with pytest.raises(LayoutError, match="bias must be a tensor"):
            humming.HummingLinear.from_quantized(q, value)


def test_what_goes_wrong_inside_a_right_call_stays_what_it_is(monkeypatch):
    layer = layer_of()

    def fails(*_: object) -> None:
        raise RuntimeError("of the kernel")

    with torch.inference_mode():
        layer(X)
        (key,) = layer._warm
        monkeypatch.setitem(layer._warm, key, fails)
        with pytest.raises(RuntimeError, match="of the kernel"):
            layer(X)
