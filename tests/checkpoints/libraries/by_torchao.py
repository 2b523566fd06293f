"""A checkpoint of torchao's tensor classes, flattened and dequantized by torchao."""

from __future__ import annotations

from typing import Any

import torch
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.prototype.mx_formats.nvfp4_tensor import NVFP4Tensor
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import (
    Float8Tensor,
    Int8Tensor,
    IntxUnpackedToInt8Tensor,
    MappingType,
    PerRow,
    PerTensor,
)
from torchao.quantization.granularity import PerBlock

from tests.checkpoints.libraries.made import Made, weight

ASYMMETRIC = MappingType.ASYMMETRIC


def make(n: int, k: int, seed: int) -> Made:
    """One module a class; `n` must be whole blocks of 16, `k` whole groups of 32."""
    w = weight(n, k, seed)
    quantized: dict[str, Any] = {
        "int8": Int8Tensor.from_hp(w, PerRow()),
        "int8_tensor": Int8Tensor.from_hp(w, PerTensor()),
        "int8_zero_points": Int8Tensor.from_hp(w, PerRow(), ASYMMETRIC),
        "int4_groups": IntxUnpackedToInt8Tensor.from_hp(w, (1, 32), torch.int4),
        "int3": IntxUnpackedToInt8Tensor.from_hp(w, (1, k), torch.int3),
        "int4_zero_points": IntxUnpackedToInt8Tensor.from_hp(
            w, (1, 16), torch.int4, mapping_type=ASYMMETRIC
        ),
        "fp8": Float8Tensor.from_hp(w, granularity=PerRow()),
        "fp8_tensor": Float8Tensor.from_hp(w, granularity=PerTensor()),
        "fp8_block": Float8Tensor.from_hp(w, granularity=PerBlock([16, 16])),
        "fp8_e5m2": Float8Tensor.from_hp(w, torch.float8_e5m2, PerRow()),
        "mxfp8": MXTensor.to_mx(w, torch.float8_e4m3fn, 32),
        "mxfp8_e5m2": MXTensor.to_mx(w, torch.float8_e5m2, 32, is_swizzled_scales=True),
        "mxfp4": MXTensor.to_mx(w, torch.float4_e2m1fn_x2, 32),
        "nvfp4": _nvfp4(w, swizzled=False),
        "nvfp4_swizzled": _nvfp4(w, swizzled=True),
        "nvfp4_one_level": NVFP4Tensor.to_nvfp4(w, 16),
    }
    named = {f"model.layers.{at}.mlp.{name}": t for at, (name, t) in enumerate(quantized.items())}
    state = {f"{module}.weight": tensor for module, tensor in named.items()}
    state |= {f"{module}.bias": weight(1, n, seed)[0] for module in named}
    tensors, metadata = flatten_tensor_state_dict(state)
    expected = {module: tensor.dequantize() for module, tensor in named.items()}
    quantization = {"quant_method": "torchao", "quant_type": {"default": {}}}
    return Made(tensors, quantization, expected, metadata)


def _nvfp4(w: torch.Tensor, swizzled: bool) -> Any:
    whole = w.abs().max().float() / (448 * 6)
    return NVFP4Tensor.to_nvfp4(w, 16, per_tensor_scale=whole, is_swizzled_scales=swizzled)
