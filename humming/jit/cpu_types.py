"""Which headers and C++ types a CPU kernel takes for a format: a table of what the headers offer.
Rendering is source.py; what is legal is spec/legality/cpu.py."""

from __future__ import annotations

from humming.spec.dtypes import DType
from humming.spec.formats import QuantFormat, TensorFormat
from humming.spec.layouts import row_scaled
from humming.spec.problem import Problem

_ELEMENTS = {"fp32": "Fp32", "bf16": "Bf16", "fp16": "Fp16"}
_PRODUCTS = {"fp32": "Fp32Product", "bf16_pairs": "Bf16PairProduct", "bytes": "ByteProduct"}
_PRODUCT_OF = {"avx512_bf16": "bf16_pairs"}  # code paths that multiply other numbers than fp32
_SPECIALS = {"none": "kNone", "nan": "kNan", "ieee": "kIeee"}


def cpu_picks(problem: Problem, code_path: str) -> dict[str, str | int]:
    """The names that a CPU template gets for `problem`'s format and types on `code_path`."""
    weight = problem.quant.weight
    dequant, stored = _stored(weight.dtype)
    product = product_of(problem.quant, code_path)
    return {
        "dequant": dequant,
        "dequant_type": _with_zero_point(stored, weight),
        "product": product,
        "product_type": _PRODUCTS[product],
        "activation": _ELEMENTS[problem.activation_dtype],
        "output": _ELEMENTS[problem.output_dtype],
        "group_size": packed_group_size(weight),
        "is_permuted": str(problem.act_order).lower(),
    }


def product_of(quant: QuantFormat, code_path: str) -> str:
    """What x and w are multiplied as: a header of humming/product/."""
    return "bytes" if quant.activation else _PRODUCT_OF.get(code_path, "fp32")


def packed_group_size(weight: TensorFormat) -> int:
    """Columns that share a packed scale; 0 where a row's scale is applied to its sums."""
    return 0 if row_scaled(weight) else weight.group_size or WHOLE_ROW


WHOLE_ROW = 1 << 30
"""The group size of a row that is one group, as those with zero points are: more than any k."""


def _stored(stored: DType) -> tuple[str, str]:
    """The header under humming/dequant/ and the type that decode `stored`."""
    if stored.name == "int4":
        return "int4", "Int4"
    if stored.kind in ("int", "uint"):
        return "integer", f"Integer<{stored.bits}, {str(stored.kind == 'int').lower()}>"
    specials = _SPECIALS[stored.specials]
    exponent, mantissa = stored.exponent_bits, stored.mantissa_bits
    return "small_float", f"SmallFloat<{exponent}, {mantissa}, humming::Specials::{specials}>"


def _with_zero_point(stored: str, weight: TensorFormat) -> str:
    if weight.zero_point is None:
        return f"Symmetric<humming::{stored}>"
    return f"ZeroPoint<humming::{stored}, {str(weight.zero_point == 'int').lower()}>"
