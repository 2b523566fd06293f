"""Random weights of every format for CUDA tests, and a cover of what a format may meet."""

from __future__ import annotations

import torch

from humming.jit.load import TORCH_DTYPES
from humming.quantize import QuantizedTensor
from humming.quantize.tensor import scale_shape
from humming.spec.dtypes import DType
from humming.spec.formats import QuantFormat, TensorFormat

FORMATS = (
    *("int1g128", "int2g128", "int3g64", "int3g128", "int4g128", "int4g32", "int4g16", "int4"),
    *("int5", "int6g32", "int7g16", "int8g128", "int8", "int4g256", "int4g48", "int5g40"),
    *("uint1g128z", "uint2g32z", "uint3z", "uint4g128z", "uint4z", "uint4g24z", "uint5g16z"),
    *("uint8g64z", "uint4g64zf", "uint4g128zf", "uint8g128zf"),
    *("mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2", "mxint8", "nvfp4"),
    *("fp8e4m3", "fp8e4m3t", "fp8e4m3b128", "fp8e5m2", "fp3e1m1g128", "fp3e2m0g64", "fp4e2m1g128"),
    *("fp4e3m0", "fp5e2m2g40", "fp6e3m2g32", "fp6e2m3", "fp7e3m3g128", "fp8e3m4g96"),
    *("fp8e6m1g128", "fp8e7m0g64", "fp8e2m5g256", "fp8e1m6b32"),
)
"""Every width, kind of number, kind of scale, zero point, and group size that a step may meet."""


def random_weight(
    format: str,
    n: int,
    k: int,
    dtype: str,
    generator: torch.Generator,
    act_order: bool = False,
) -> QuantizedTensor:
    """A weight of `format` with codes over the whole range, on the generator's device; its group
    scales have the activation type `dtype` where the format names none."""
    weight, device = QuantFormat.parse(format).weight, generator.device

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, device=device) * (high - low) + low

    shape = scale_shape(weight, n, k)
    shared = None
    if weight.scale_dtype == "e8m0":
        scales = uniform(117, 124, *shape).to(torch.uint8).view(torch.float8_e8m0fnu)
    elif weight.scale_dtype:
        scales = uniform(0.3, 3.3, *shape).to(torch.float8_e4m3fn)
        shared = uniform(0.003, 0.013, 1)
    else:
        scales = uniform(0.002, 0.022, *shape)
        if weight.granularity in ("group", "block") or weight.zero_point:
            scales = scales.to(TORCH_DTYPES[dtype])
    zeros = None
    if weight.zero_point:
        zeros = uniform(0, 1 << weight.dtype.bits, *shape)
        zeros = zeros.to(torch.uint8 if weight.zero_point == "int" else TORCH_DTYPES[dtype])
    order = torch.randperm(k, generator=generator, device=device) if act_order else None
    codes = _random_codes(weight, n, k, generator)
    activation, fixed = QuantFormat.parse(format).activation, None
    if activation is not None and not activation.dynamic:
        fixed = torch.full((1,), 6 / activation.dtype.largest, device=device)
    order = None if order is None else order.to(torch.int32)
    return QuantizedTensor(format, codes, scales, zeros, shared, order, fixed)


def _random_codes(weight: TensorFormat, n: int, k: int, generator: torch.Generator) -> torch.Tensor:
    stored, device = weight.dtype, generator.device
    low = stored.integer_range[0] if stored.is_integer else 0
    of = torch.int8 if stored.kind == "int" else torch.uint8
    high = low + (1 << stored.bits)
    codes = torch.randint(low, high, (n, k), generator=generator, device=device).to(of)
    return codes if stored.is_integer else _tame(codes, stored, generator)


def _tame(codes: torch.Tensor, stored: DType, generator: torch.Generator) -> torch.Tensor:
    """Float codes without NaN and infinity, and of magnitudes that a sum can hold together."""
    if stored.specials == "nan":
        codes = torch.where((codes & 0x7F) == 0x7F, codes ^ 1, codes)
    if stored.specials == "ieee":
        codes = torch.where((codes & 0x7C) == 0x7C, codes ^ 0x40, codes)
    if stored.exponent_bits >= 6:
        near = torch.randint(0, 8, codes.shape, generator=generator, device=codes.device)
        exponent = (near + stored.exponent_bias - 4).to(torch.uint8) << stored.mantissa_bits
        mask = ((1 << stored.exponent_bits) - 1) << stored.mantissa_bits
        codes = codes & (0xFF ^ mask) | exponent
    return codes
