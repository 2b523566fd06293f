"""Layers on a GPU for the tests marked `gpu`, and what right numbers are there."""

import torch
from torch import nn

import humming

DTYPES = [torch.bfloat16, torch.float16]


def layer_of(n=1000, k=520, bias=True, dtype=torch.bfloat16, device="cuda", seed=0):
    torch.manual_seed(seed)
    linear = nn.Linear(k, n, bias=bias, dtype=dtype, device=device)
    return humming.HummingLinear.from_linear(linear, "int4g128")


def random(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype)


def assert_right(layer, x, y):
    """The error against float64 is at most 1.1 x that of torch's matmul on the same weights."""
    rows, w = x.reshape(-1, layer.in_features), layer.quantized().dequantize()
    expected, bias = rows.double() @ w.T, layer.bias
    expected = expected if bias is None else expected + bias.double()
    theirs = nn.functional.linear(
        rows, w.to(x.dtype), None if bias is None else bias.to(x.dtype)
    ).double()
    got = y.reshape(-1, layer.out_features).double()
    assert y.dtype == x.dtype
    assert y.shape == (*x.shape[:-1], layer.out_features)
    assert bool(got.isfinite().all())
    limit = 1.1 * float((theirs - expected).norm()) + 1e-9 * float(expected.norm())
    assert float((got - expected).norm()) <= limit
