"""Laws of quantized weights, for every format: what is done and undone is as it was."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from formats_strategy import formats, same_bits, weight
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import humming
from humming.errors import LayoutError
from humming.quantize import files, pack, quantize, unpack
from humming.quantize.drawn import drawn
from humming.quantize.slicing import take_rows
from humming.reference import matmul_float64
from humming.spec.layouts import LAYOUTS

SIZES = {"n": st.integers(1, 40), "k": st.integers(1, 150), "seed": st.integers(0, 2**16)}


def any_weight(format, n, k, seed, act_order=False, dtype=torch.bfloat16):
    return drawn(format, n, k, torch.Generator().manual_seed(seed), dtype, act_order)


@settings(max_examples=120, deadline=None)
@given(format=formats, method=st.sampled_from(["absmax", "mse"]), **SIZES)
def test_quantizing_what_was_quantized_changes_nothing(format, method, n, k, seed):
    once = quantize(weight(n, k, seed), format)
    once.check_numbers()
    values = once.dequantize()
    assert torch.equal(quantize(values, format, method).dequantize(), values)


@settings(max_examples=60, deadline=None)
@given(format=formats, **SIZES)
def test_searched_clipping_is_never_worse_and_always_the_same(format, n, k, seed):
    w = weight(n, k, seed)
    plain, searched = quantize(w, format), quantize(w, format, "mse")
    assert searched.error(w) <= plain.error(w) * (1 + 1e-6) + 1e-6  # of sums in fp32
    again = quantize(w, format, "mse")
    for name, tensor in searched.tensors.items():
        assert same_bits(tensor, again.tensors[name])


@settings(max_examples=120, deadline=None)
@given(format=formats, layout=st.sampled_from(sorted(LAYOUTS)), act_order=st.booleans(), **SIZES)
def test_unpacking_gives_what_was_packed(format, layout, act_order, n, k, seed):
    q = any_weight(format, n, k, seed, act_order)
    back = unpack(pack(q, layout))
    assert back.format == q.format
    assert sorted(back.tensors) == sorted(q.tensors)
    for name, tensor in q.tensors.items():
        assert same_bits(back.tensors[name], tensor), name


@settings(max_examples=60, deadline=None)
@given(format=formats, act_order=st.booleans(), **SIZES)
def test_a_layer_keeps_codes_and_scales_through_files(
    tmp_path_factory, format, act_order, n, k, seed
):
    q = any_weight(format, n, k, seed, act_order)
    layer = humming.HummingLinear.from_quantized(q)
    path = tmp_path_factory.mktemp("saved") / "layer.safetensors"
    save_file(layer.state_dict(), path)
    other = humming.HummingLinear(k, n, bias=False, format=format, dtype=layer.dtype)
    other.load_state_dict(load_file(path))
    back = other.quantized()
    for name, tensor in q.tensors.items():
        assert same_bits(back.tensors[name], tensor), name


@settings(max_examples=60, deadline=None)
@given(format=formats, act_order=st.booleans(), **SIZES)
def test_a_weight_keeps_its_tensors_through_a_file(tmp_path_factory, format, act_order, n, k, seed):
    q = any_weight(format, n, k, seed, act_order)
    path = tmp_path_factory.mktemp("saved") / "weight.safetensors"
    files.save(q, path)
    back = files.load(path)
    assert back.format == q.format
    assert sorted(back.tensors) == sorted(q.tensors)
    for name, tensor in q.tensors.items():
        assert same_bits(back.tensors[name], tensor), name


def test_a_file_that_is_not_a_weight_is_refused(tmp_path):
    q = any_weight("int4g32", 4, 64, 1)
    path = tmp_path / "weight.safetensors"
    wrong = {
        "cannot be read": lambda: path.write_bytes(b"not one"),
        "names no format and k": lambda: save_file({"codes": q.codes}, path),
        "must hold the tensors of": lambda: save_file(
            {"codes": q.codes, "w": q.scales}, path, {"humming.format": "int4", "humming.k": "64"}
        ),
        "codes must be uint8": lambda: save_file(
            {"codes": q.codes, "scales": q.scales},
            path,
            {"humming.format": "int4", "humming.k": "64"},
        ),
        "isfinite": lambda: files.save(replace(q, scales=q.scales * math.nan), path),
    }
    for sentence, write in wrong.items():
        write()
        with pytest.raises(LayoutError, match=sentence):
            files.load(path)


@settings(max_examples=100, deadline=None)
@given(format=formats, act_order=st.booleans(), data=st.data(), **SIZES)
def test_a_slice_has_the_numbers_of_the_whole(format, act_order, data, n, k, seed):
    q = any_weight(format, n, k, seed, act_order)
    rows = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True)))
    columns = sorted(data.draw(st.lists(st.integers(0, k), min_size=2, max_size=2, unique=True)))
    part = q.slice_rows(*rows).slice_columns(*columns)
    part.check_numbers()
    assert torch.equal(part.dequantize(), q.dequantize()[slice(*rows), slice(*columns)])


@settings(max_examples=40, deadline=None)
@given(format=formats, act_order=st.booleans(), data=st.data(), **SIZES)
def test_slicing_commutes_with_loading(format, act_order, data, n, k, seed):
    q = any_weight(format, n, k, seed, act_order)
    start = data.draw(st.integers(0, k - 1))
    layer = humming.HummingLinear.from_quantized(q)
    loaded = layer.quantized().slice_columns(start, k)
    again = humming.HummingLinear.from_quantized(q.slice_columns(start, k)).quantized()
    assert loaded.format == again.format
    for name, tensor in again.tensors.items():
        assert same_bits(loaded.tensors[name], tensor), name


@settings(max_examples=40, deadline=None)
@given(format=formats, **SIZES)
def test_shuffled_columns_give_the_same_product(format, n, k, seed):
    q = any_weight(format, n, k, seed)
    order = torch.randperm(k, generator=torch.Generator().manual_seed(seed)).to(torch.int32)
    shuffled = replace(q, permutation=order)
    # Stored column j reads feature order[j]: on features in stored order both are one product.
    x = torch.randn(3, k, dtype=torch.float64)
    features = torch.empty_like(x)
    features[:, order.long()] = x
    expected = matmul_float64(x, q)
    assert torch.allclose(matmul_float64(features, shuffled), expected, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(format=formats, **SIZES)
def test_a_layer_before_can_give_its_outputs_in_stored_order(format, n, k, seed):
    before, after = any_weight(format, k, n, seed), any_weight(format, n, k, seed, act_order=True)
    plain = replace(after, permutation=None)
    reordered = take_rows(before, after.permutation)
    assert torch.equal(reordered.dequantize(), before.dequantize()[after.permutation.long()])
    x = torch.randn(2, n, dtype=torch.float64)
    expected = matmul_float64(matmul_float64(x, before), after)
    got = matmul_float64(matmul_float64(x, reordered), plain)
    assert torch.allclose(got, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("format", ["int4g128", "fp8e4m3b128", "uint4g128z"])
def test_a_rank_of_1728_columns_gets_groups_of_64(format):
    q = any_weight(format, 16, 3456, 1)
    part = q.slice_columns(1728, 3456)
    assert part.group_size == 64
    assert torch.equal(part.dequantize(), q.dequantize()[:, 1728:])
    assert q.slice_columns(0, 1728).format == format  # the last group may be ragged


def test_what_is_not_there_cannot_be_cut():
    q = any_weight("int4g128", 16, 256, 1)
    for outside in (torch.tensor([16]), torch.tensor([-1]), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(LayoutError, match=r"rows must be integers of 0 \.\. 15"):
            take_rows(q, outside)
    for cut in (
        lambda: q.slice_rows(4, 4),
        lambda: q.slice_columns(-1, 3),
        lambda: q.slice_rows(0, 17),
    ):
        with pytest.raises(LayoutError, match="0 <= start < end"):
            cut()
