"""Which weights go with which activations: one principle gives the published support matrix."""

from __future__ import annotations

import pytest
from formats_strategy import SMALL_FLOATS

from humming.spec.combinations import lost_value, rounds, why_not
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat


def integers(most):
    return {f"int{bits}" for bits in range(1, most + 1)}


@pytest.mark.parametrize(
    ("activation", "widest_integer", "exponent", "mantissa"),
    [("fp8e4m3", 5, 4, 3), ("int8", 8, 0, 0), ("int4", 4, 0, 0), ("fp4e2m1", 3, 2, 1)],
)
def test_quantized_activations_take_at_least_these(activation, widest_integer, exponent, mantissa):
    taken = dtype(activation)
    for bits in range(1, 9):
        goes = lost_value(dtype(f"int{bits}"), taken) is None
        assert goes == (bits <= widest_integer)
        assert (lost_value(dtype(f"uint{bits}"), taken) is None) == goes
    for name in SMALL_FLOATS:
        small = dtype(name)
        if small.exponent_bits <= exponent and small.mantissa_bits <= mantissa:
            assert lost_value(small, taken) is None, name


def test_16_bit_activations_round_nothing_but_what_is_out_of_their_range():
    for name in [*integers(8), "uint8", *SMALL_FLOATS]:
        assert not rounds(dtype(name), dtype("bf16"))
        assert rounds(dtype(name), dtype("fp16")) == (dtype(name).largest > 65504)


def test_a_reason_names_a_value_and_a_way_out():
    assert why_not("int6g128-fp8e4m3") == (
        "each value of int6 must be one of fp8e4m3 up to a power of two, but -17 is not; use the "
        "weight with 16-bit activations, as in int6g128"
    )
    for format in (
        "int8",
        "fp8e6m1",
        "int4-int8",
        "mxfp4-fp8e4m3",
        "nvfp4-nvfp4",
        "uint4g64z-int8",
    ):
        assert why_not(format) == ""
    assert str(QuantFormat.parse("int5-int4")) == "int5-int4" and why_not("int5-int4")
