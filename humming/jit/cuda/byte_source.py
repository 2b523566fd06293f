"""Render the sources of the families that multiply bytes: wgmma8 and scaled_mm. Other families, and
the door to all, are source.py; compiling is jit/nvrtc.py.
"""

from __future__ import annotations

from typing import Any

from humming.errors import FormatError
from humming.jit.cuda.source import INCLUDE_DIR, environment, input_recipe
from humming.jit.cuda.weight_constants import CXX_TYPES
from humming.jit.source import KernelSource, headers_of
from humming.spec.carriers import carrier
from humming.spec.config import ScaledMmConfig, Wgmma8Config, config_to_dict
from humming.spec.layouts import (
    CUDA_A8_LAYOUT,
    has_row_scales,
    packed_group_size,
    packed_scale_dtype,
    tile_scaled,
)
from humming.spec.legality import wgmma8_smem_bytes
from humming.spec.problem import Problem

_BYTE_TYPES = {"int8": "Int8", "fp8e4m3": "E4m3"}
_GROUP_CODES = {
    ("int4", "int8"): "Int4AsInt8",
    ("int4", "fp8e4m3"): "Int4AsE4m3",
    ("fp4e2m1", "fp8e4m3"): "Fp4AsE4m3",
}
_SCALE_TYPES = {**CXX_TYPES, "fp32": "Fp32"}


def render_bytes(config: Wgmma8Config | ScaledMmConfig, problem: Problem) -> KernelSource:
    """The source of `config` for `problem`'s format and dtypes.

    Raises FormatError where x is not multiplied in bytes.
    """
    held = carrier(problem.format)
    if held not in _BYTE_TYPES or problem.activation_dtype not in CXX_TYPES:
        raise FormatError(
            f"family '{config.family}' renders {' and '.join(_BYTE_TYPES)} activations of a "
            f"{' or '.join(CXX_TYPES)} layer, but got '{problem.format}' and "
            f"{problem.activation_dtype}"
        )
    static: dict[str, Any] = {
        **config_to_dict(config),
        "format": problem.format,
        "input_recipe": input_recipe(problem),
        "activation_dtype": problem.activation_dtype,
        "output_dtype": problem.output_dtype,
        **byte_constants(problem),
    }
    if isinstance(config, Wgmma8Config):
        static["smem_bytes"] = wgmma8_smem_bytes(config, problem)
    activation, experts = CXX_TYPES[problem.activation_dtype], problem.op == "moe"
    picks = {"activation": activation, "scale_type": static["scale"].replace("Fp32", activation)}
    picks |= {"grouped": int(experts), "entry": config.family + ("_experts" if experts else "")}
    if experts:
        static["op"] = problem.op
    text = environment().get_template(f"{config.family}.cu.j2").render(**static, **picks)
    return KernelSource(
        family=config.family,
        text=text,
        language="cuda",
        flags=("arch-specific",) if isinstance(config, Wgmma8Config) else (),
        headers=headers_of(text, INCLUDE_DIR),
        static=static,
    )


def byte_constants(problem: Problem) -> dict[str, Any]:
    """Constants of `problem`'s format where bytes are multiplied.

    byte_type, group_codes   types of dequant/group_bytes.cuh: what tensor cores multiply weights
                             as, and how codes become that
    scale                    the type of packed scales
    packed_group_size        columns that share one; 0 = none
    block_scales             1 where 16 rows share one, in fp32
    x_group_size             columns of x that share a scale; 0 = a row has one
    """
    weight, activation = problem.quant.weight, problem.quant.activation
    held = carrier(problem.format) or ""
    byte_type = _BYTE_TYPES[held]
    codes = _GROUP_CODES.get((weight.dtype.name, held), "ByteRows")
    if weight.scale_dtype == "e8m0":
        byte_type, codes = "E5m2", "ScaledFp4"
    return {
        "byte_type": byte_type,
        "group_codes": codes,
        "code_bits": weight.dtype.bits,
        "scale": _SCALE_TYPES[packed_scale_dtype(CUDA_A8_LAYOUT, weight, problem.activation_dtype)],
        "packed_group_size": packed_group_size(CUDA_A8_LAYOUT, weight, problem.k),
        "block_scales": int(tile_scaled(CUDA_A8_LAYOUT, weight)),
        "x_group_size": (activation.group_size if activation else None) or 0,
        "has_zero_points": 0,
        "has_row_scales": int(has_row_scales(CUDA_A8_LAYOUT, weight)),
    }
