"""Render the family mma where it multiplies codes. Where it multiplies numbers of 16 bits is
source.py, as are other families; compiling is jit/nvrtc.py."""

from __future__ import annotations

from typing import Any

from humming.errors import FormatError
from humming.jit.cuda.source import INCLUDE_DIR, environment, input_recipe
from humming.jit.cuda.weight_constants import CXX_TYPES
from humming.jit.source import KernelSource, headers_of
from humming.spec.carriers import block_scaled, carrier
from humming.spec.config import MmaConfig, config_to_dict
from humming.spec.layouts import (
    CUDA_A8_LAYOUT,
    has_row_scales,
    packed_group_size,
    packed_scale_dtype,
    tile_scaled,
)
from humming.spec.legality import mma_smem_bytes
from humming.spec.legality.mma_bytes import promoted_columns
from humming.spec.problem import Problem

_PRODUCTS = {"int8": "Int8Products", "fp8e4m3": "E4m3Products", "fp8e5m2": "E5m2Products"}


def render_mma_bytes(config: MmaConfig, problem: Problem) -> KernelSource:
    """The source of `config` for `problem`'s format and dtypes.

    Raises FormatError where no type of 8 bits holds the codes.
    """
    held = carrier(problem.format) or block_scaled(problem.format)
    if not held or problem.activation_dtype not in CXX_TYPES:
        raise FormatError(
            f"family 'mma' multiplies codes of {', '.join(_PRODUCTS)} in a layer of "
            f"{' or '.join(CXX_TYPES)}, but got '{problem.format}' and {problem.activation_dtype}"
        )
    static: dict[str, Any] = {
        **config_to_dict(config),
        "format": problem.format,
        "input_recipe": input_recipe(problem, bool(config.narrow)),
        "activation_dtype": problem.activation_dtype,
        "output_dtype": problem.output_dtype,
        **_constants(config, problem),
        "smem_bytes": mma_smem_bytes(config, problem),
    }
    experts = problem.op == "moe"
    picks: dict[str, Any] = {"activation": CXX_TYPES[problem.activation_dtype]}
    picks |= {"grouped": int(experts), "entry": "mma_bytes" + ("_experts" if experts else "")}
    if experts:
        static["op"] = problem.op
    text = environment().get_template("mma_bytes.cu.j2").render(**static, **picks)
    headers = headers_of(text, INCLUDE_DIR)
    along = config.narrow and block_scaled(problem.format)
    flags = ("arch-specific",) if along else ()
    return KernelSource("mma", text, "cuda", flags, headers, static)


def _constants(config: MmaConfig, problem: Problem) -> dict[str, Any]:
    """What the format is to the template.

    products           a type of dequant/byte_carrier.cuh
    codes              a type of dequant/byte_codes.cuh
    scale, wide_scale  the type of packed scales; that of those of 16 bits, which are widened
    packed_group_size  columns that share one; 0 = none
    block_scales       1 where 16 rows share one, in fp32
    x_group_size       columns of x that share a scale; 0 = a row has one
    x_rows_scaled      1 where its rows have scales besides
    promoted           columns whose sums become fp32 at a time; 0 = those over all of k
    """
    weight, activation = problem.quant.weight, problem.quant.activation
    scale = packed_scale_dtype(CUDA_A8_LAYOUT, weight, problem.activation_dtype)
    products = _products(config, problem)
    return {
        "products": products,
        "codes": _codes(config, problem, products),
        "scale": CXX_TYPES.get(scale, "Fp32"),
        "wide_scale": CXX_TYPES.get(scale, "Bf16"),
        "packed_group_size": packed_group_size(CUDA_A8_LAYOUT, weight, problem.k),
        "block_scales": int(tile_scaled(CUDA_A8_LAYOUT, weight)),
        "x_group_size": (activation.group_size if activation else None) or 0,
        "x_rows_scaled": int(activation is not None and activation.second_scale),
        "promoted": promoted_columns(problem, config.narrow),
        "has_zero_points": int(weight.zero_point is not None),
        "has_row_scales": int(has_row_scales(CUDA_A8_LAYOUT, weight)),
    }


def _products(config: MmaConfig, problem: Problem) -> str:
    if not config.narrow:
        return _PRODUCTS[carrier(problem.format) or "int8"]
    along = block_scaled(problem.format)
    return f"Fp4Products<{problem.quant.weight.group_size}>" if along else "Int4Products"


def _codes(config: MmaConfig, problem: Problem, products: str) -> str:
    weight = problem.quant.weight
    stored = weight.dtype
    if config.narrow:
        along = block_scaled(problem.format)
        return f"Fp4Codes<{weight.group_size}>" if along else "NibbleCodes"
    if stored.bits == 8:
        return "RowCodes"
    if stored.is_integer:
        zeros = "true" if weight.zero_point else "false"
        return f"ByteIntegers<{stored.bits}, {products}, {zeros}>"
    return f"ByteFloats<{stored.exponent_bits}, {stored.mantissa_bits}, {products}>"
