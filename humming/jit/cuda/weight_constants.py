"""What a weight format is to a CUDA template: the names of its C++ types and its constants. No
rendering, no tensors."""

from __future__ import annotations

from typing import Any

from humming.spec.layouts import cuda_group_size, cuda_scale_dtype, row_scaled
from humming.spec.problem import Problem

CXX_TYPES = {"bf16": "Bf16", "fp16": "Fp16"}
_FP16_EXPONENT_BITS = 5


def weight_constants(problem: Problem) -> dict[str, Any]:
    """Constants of `problem`'s weight format for its activation type.

    codes, wide_codes  types of dequant/integer.cuh or small_float.cuh: fragments in the
                       activation's type, and in fp32
    scale              the type of packed scales and zero points
    wide               1 where (code - zero point) * scale is more than one product in 16 bits
    packed_group_size  columns that share a packed scale; 0 = none
    """
    weight, activation = problem.quant.weight, problem.activation_dtype
    stored, size = weight.dtype, cuda_group_size(weight)
    scale = cuda_scale_dtype(weight, activation)
    has_row_scales = row_scaled(weight) or weight.second_scale
    if stored.is_integer:
        codes = f"IntegerCodes<{stored.bits}, {CXX_TYPES[activation]}>"
        wide_codes = f"WideIntegers<{stored.bits}>"
    else:
        parts = f"{stored.exponent_bits}, {stored.mantissa_bits}"
        codes, wide_codes = f"FloatCodes<{parts}, {CXX_TYPES[activation]}>", f"WideFloats<{parts}>"
    wide = (
        weight.zero_point is not None
        or has_row_scales
        or scale != activation
        or size % 16 != 0
        or not fits_activation(problem)
    )
    return {
        "codes": codes,
        "wide_codes": wide_codes,
        "code_bits": stored.bits,
        "scale": CXX_TYPES[scale],
        "wide": int(wide),
        "packed_group_size": size,
        "has_zero_points": int(weight.zero_point is not None),
        "float_zero_points": int(weight.zero_point == "float"),
        "has_row_scales": int(has_row_scales),
    }


def fits_activation(problem: Problem) -> bool:
    """Whether the activation's type holds every code of the weight's: fp16 lacks the exponents of
    some floats."""
    stored = problem.quant.weight.dtype
    return problem.activation_dtype != "fp16" or stored.exponent_bits <= _FP16_EXPONENT_BITS
