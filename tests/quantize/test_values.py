"""What codes are worth: against torch's own types, the published tables, and the nearest value."""

from __future__ import annotations

import math

import pytest
import torch
from formats_strategy import SMALL_FLOATS
from hypothesis import given
from hypothesis import strategies as st

from humming.quantize.values import decode, encode, value_table
from humming.spec.dtypes import dtype


@pytest.mark.parametrize("name", ["fp8e4m3", "fp8e5m2"])
def test_floats_of_8_bits_are_those_of_torch(name):
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    ours = decode(codes, dtype(name))
    theirs = codes.view(getattr(torch, dtype(name).torch_name)).float()
    assert torch.equal(ours.nan_to_num(nan=7.0), theirs.nan_to_num(nan=7.0))
    assert torch.equal(ours.isnan(), theirs.isnan())
    x = torch.randn(10000, generator=torch.Generator().manual_seed(0)) * 20
    assert torch.equal(
        decode(encode(x.clone(), dtype(name)), dtype(name)), x.to(theirs_type(name)).float()
    )


def theirs_type(name):
    return getattr(torch, dtype(name).torch_name)


def test_published_tables():
    assert value_table(dtype("fp4e2m1"))[:8] == (0, 0.5, 1, 1.5, 2, 3, 4, 6)
    assert value_table(dtype("fp6e2m3"))[31] == 7.5
    assert value_table(dtype("fp6e3m2"))[31] == 28
    assert value_table(dtype("fp6e3m2"))[1] == 0.0625
    assert value_table(dtype("int2")) == (0, 1, -2, -1)
    assert value_table(dtype("uint1")) == (0, 1)
    assert math.isnan(value_table(dtype("fp8e4m3"))[127])
    assert value_table(dtype("fp8e5m2"))[124] == math.inf


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_values_rise_and_the_largest_is_the_last(name):
    stored = dtype(name)
    half = [
        value for value in value_table(stored)[: 1 << (stored.bits - 1)] if math.isfinite(value)
    ]
    assert half == sorted(set(half))
    assert half[0] == 0 and half[-1] == stored.largest
    codes = torch.arange(len(half), dtype=torch.int32).to(torch.uint8)
    assert torch.equal(encode(torch.tensor(half), stored), codes)
    assert torch.equal(
        encode(-torch.tensor(half), stored)[1:], codes[1:] + (1 << (stored.bits - 1))
    )


@given(st.sampled_from(SMALL_FLOATS), st.floats(-2, 2, width=32))
def test_the_nearest_value_is_taken(name, part):
    stored = dtype(name)
    x = torch.tensor([part * stored.largest], dtype=torch.float32)
    finite = torch.tensor([v for v in value_table(stored) if math.isfinite(v)], dtype=torch.float64)
    got = decode(encode(x.clone(), stored), stored, torch.float64)
    distances = (finite - x.double()).abs()
    assert float((got - x.double()).abs()) == float(distances.min())
