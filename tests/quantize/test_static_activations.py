"""Static activations: the one scale of x goes with the weight, and x is cut to what it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from humming.errors import FormatError, LayoutError
from humming.quantize import pack, quantize, unpack
from humming.quantize.activations import quantize_activations
from humming.quantize.files import load, save
from humming.quantize.slicing import concat_rows
from humming.reference import matmul_float64
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT, CUDA_LAYOUT

FORMAT = "fp8e4m3-fp8e4m3t"


def weight(scale: float = 0.25, n: int = 24, k: int = 72):
    draw = torch.Generator().manual_seed(n)
    q = quantize(torch.randn(n, k, generator=draw), FORMAT)
    return replace(q, input_scale=torch.tensor([scale]))


def test_x_is_divided_by_the_stored_scale_and_cut():
    x = torch.tensor([[0.1, -3.0, 200.0, -0.0, 1.0]])
    codes, scales = quantize_activations(
        x, QuantFormat.parse(FORMAT).activation, torch.tensor([0.25])
    )
    values = codes.view(torch.float8_e4m3fn).float() * scales
    wanted = (x / 0.25).clamp(-448, 448).to(torch.float8_e4m3fn).float() * 0.25
    assert torch.equal(values, wanted)
    assert scales.tolist() == [[0.25]]
    with pytest.raises(FormatError, match="need the scale that is stored"):
        quantize_activations(x, QuantFormat.parse(FORMAT).activation)


@pytest.mark.parametrize("layout", [CUDA_LAYOUT, CUDA_A8_LAYOUT])
def test_the_scale_is_packed_and_comes_back(layout, tmp_path):
    q = weight()
    assert unpack(pack(q, layout, torch.bfloat16)).input_scale.tolist() == [0.25]
    save(q, tmp_path / "w.safetensors")
    assert load(tmp_path / "w.safetensors").input_scale.tolist() == [0.25]
    with pytest.raises(LayoutError, match="input_scale"):
        pack(replace(q, input_scale=None), layout, torch.bfloat16)


def test_parts_keep_it_and_fused_ones_have_the_largest():
    q, other = weight(), weight(0.5, n=8)
    assert q.slice_rows(0, 8).input_scale.tolist() == [0.25]
    assert q.slice_columns(0, 16).input_scale.tolist() == [0.25]
    assert concat_rows([q, other]).input_scale.tolist() == [0.5]


def test_products_are_of_the_cut_numbers():
    q, x = weight(0.01), torch.randn(3, 72) * 4
    multiplied = (x / 0.01).clamp(-448, 448).to(torch.float8_e4m3fn).double() * float(q.input_scale)
    wanted = multiplied @ q.dequantize().T
    assert torch.allclose(matmul_float64(x, q), wanted, rtol=1e-9)


def test_a_scale_that_no_format_asks_for_is_refused():
    with pytest.raises(LayoutError, match="left out where x is not quantized by one scale"):
        replace(quantize(torch.randn(8, 16), "fp8e4m3"), input_scale=torch.ones(1))
    with pytest.raises(LayoutError, match="fp32 \\[1\\]"):
        replace(weight(), input_scale=torch.ones(2))
