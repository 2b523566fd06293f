"""A checkpoint of every scheme of compressed-tensors, which compresses and decompresses it."""

from __future__ import annotations

import math
from typing import Any

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

from tests.checkpoints.libraries.made import Made, weight

DYNAMIC_INT8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
STATIC_FP8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}


def integer(bits: int, size: int | None = None, symmetric: bool = True) -> dict[str, Any]:
    args: dict[str, Any] = {"num_bits": bits, "type": "int", "symmetric": symmetric}
    return (
        {**args, "strategy": "group", "group_size": size}
        if size
        else {
            **args,
            "strategy": "channel",
        }
    )


def floating(bits: int, strategy: str, **more: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": "float", "symmetric": True, "strategy": strategy, **more}


SCHEMES: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    **{f"int{bits}": ("pack-quantized", integer(bits), None) for bits in range(1, 9)},
    **{f"int{bits}_groups": ("pack-quantized", integer(bits, 16), None) for bits in (2, 3, 4, 8)},
    **{
        f"uint{bits}_groups": ("pack-quantized", integer(bits, 16, False), None)
        for bits in (2, 3, 4, 5, 8)
    },
    "uint8": ("pack-quantized", integer(8, symmetric=False), None),
    "w8a8": ("int-quantized", integer(8), DYNAMIC_INT8),
    "w8a8_zero_points": ("int-quantized", integer(8, symmetric=False), DYNAMIC_INT8),
    "w4a8": ("int-quantized", integer(4, 32), DYNAMIC_INT8),
    "int8_tensor": ("naive-quantized", {**integer(8), "strategy": "tensor"}, None),
    "fp8_tensor": ("float-quantized", floating(8, "tensor"), STATIC_FP8),
    "fp8_channel": ("float-quantized", floating(8, "channel"), None),
    "fp8_group": ("naive-quantized", floating(8, "group", group_size=16), None),
    "fp8_block": ("float-quantized", floating(8, "block", block_structure=[16, 16]), None),
    "fp8_flat_block": ("float-quantized", floating(8, "block", block_structure=[1, 16]), None),
    "nvfp4": ("nvfp4-pack-quantized", floating(4, "tensor_group", group_size=16), None),
    **{
        name: (
            format,
            floating(bits, "group", group_size=32, scale_dtype="torch.uint8"),
            None,
        )
        for name, bits, format in (
            ("mxfp4", 4, "mxfp4-pack-quantized"),
            ("mxfp6", 6, "mxfp6-pack-quantized"),
            ("mxfp8", 8, "mxfp8-quantized"),
        )
    },
}


def make(n: int, k: int, seed: int, names: tuple[str, ...] = tuple(SCHEMES)) -> Made:
    """One module a scheme, of `k` input features where the scheme needs whole groups of 32."""
    tensors: dict[str, torch.Tensor] = {}
    expected: dict[str, torch.Tensor] = {}
    groups: dict[str, Any] = {}
    for at, name in enumerate(names):
        format, weights, activations = SCHEMES[name]
        module = f"model.layers.{at}.mlp.{name}"
        stored, expected[module] = compress(weight(n, k, seed + at), format, weights)
        if activations is STATIC_FP8:
            stored["input_scale"] = torch.tensor([0.25])
        tensors |= {f"{module}.{suffix}": tensor for suffix, tensor in stored.items()}
        groups[f"group_{at}"] = {
            "targets": [rf"re:.*\.{name}$"],
            "weights": weights,
            "input_activations": activations,
            "format": format,
        }
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": groups,
        "ignore": ["lm_head"],
    }
    return Made(tensors, quantization, expected)


def compress(
    w: torch.Tensor, format: str, weights: dict[str, Any]
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The stored tensors of `w`, and the weight that the library takes from them."""
    args = QuantizationArgs(**weights)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format=format)
    whole = None
    if args.strategy == "tensor_group":
        whole = generate_gparam(w.amin().reshape(1), w.amax().reshape(1))
    scale, zero_point = calculate_qparams(*_range(w, args), args, global_scale=whole)
    state = {"weight": w, "weight_scale": scale, "weight_zero_point": zero_point}
    if whole is not None:
        state["weight_global_scale"] = whole
    library = BaseCompressor.get_value_from_registry(format)
    stored = dict(library.compress(state, scheme))
    return stored, library.decompress(dict(stored), scheme)["weight"]


def _range(w: torch.Tensor, args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    n, k = w.shape
    if args.strategy in ("group", "tensor_group"):
        grouped = w.view(n, -1, args.group_size)
        return grouped.amin(2), grouped.amax(2)
    if args.strategy == "channel":
        return w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    if args.strategy == "tensor":
        return w.amin().reshape(1), w.amax().reshape(1)
    rows, columns = args.block_structure
    high, wide = math.ceil(n / rows), math.ceil(k / columns)
    padded = torch.nn.functional.pad(w, (0, wide * columns - k, 0, high * rows - n))
    blocks = padded.view(high, rows, wide, columns)
    return blocks.amin((1, 3)), blocks.amax((1, 3))
