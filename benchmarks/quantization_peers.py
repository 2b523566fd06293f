"""What other libraries make of the same weights, where they are installed: the MSE observer of
llmcompressor (over compressed-tensors), and HQQ. Our own errors are quantization_error.py."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

_OBSERVED: dict[str, dict[str, object]] = {
    "int4g128": {"num_bits": 4, "strategy": "group", "group_size": 128},
    "int8g128": {"num_bits": 8, "strategy": "group", "group_size": 128},
    "int4g32": {"num_bits": 4, "strategy": "group", "group_size": 32},
    "int4": {"num_bits": 4, "strategy": "channel"},
    "int8": {"num_bits": 8, "strategy": "channel"},
    "int3g128": {"num_bits": 3, "strategy": "group", "group_size": 128},
    "int2g128": {"num_bits": 2, "strategy": "group", "group_size": 128},
    "uint4g128z": {"num_bits": 4, "strategy": "group", "group_size": 128, "symmetric": False},
    "uint8z": {"num_bits": 8, "strategy": "channel", "symmetric": False},
    "fp8e4m3": {"num_bits": 8, "type": "float", "strategy": "channel"},
    "fp8e4m3t": {"num_bits": 8, "type": "float", "strategy": "tensor"},
    "fp8e4m3b128": {
        "num_bits": 8,
        "type": "float",
        "strategy": "block",
        "block_structure": [128, 128],
    },
    "nvfp4": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
}
"""Formats as the arguments of compressed-tensors name them."""
_HQQ = {f"uint{bits}g64zf": bits for bits in (1, 2, 3, 4, 8)}


def peers(weights: dict[str, torch.Tensor]) -> dict[str, object]:
    """Library -> its version and, a format and weight, its error; libraries that are installed."""
    found: dict[str, object] = {}
    for library, formats, error in (
        ("llmcompressor", _OBSERVED, _observer_error),
        ("hqq", _HQQ, _hqq_error),
    ):
        try:
            installed = version(library)
        except PackageNotFoundError:
            continue
        errors = {
            name: {kind: round(error(name, w), 6) for kind, w in weights.items()}
            for name in formats
        }
        found[library] = {"version": installed, "errors": errors}
    return found


def _observer_error(name: str, w: torch.Tensor) -> float:
    quantization: Any = import_module("compressed_tensors.quantization")
    forward: Any = import_module("compressed_tensors.quantization.lifecycle.forward")
    observers: Any = import_module("llmcompressor.observers")
    arguments = quantization.QuantizationArgs(observer="memoryless_mse", **_OBSERVED[name])
    observer = observers.Observer.load_from_registry(
        "memoryless_mse", base_name="weight", args=arguments
    )
    found = observer(w).get_qparams()
    made = forward.fake_quantize(
        w, found["scale"], found["zero_point"], arguments, global_scale=found["global_scale"]
    )
    return _relative(made, w)


def _hqq_error(name: str, w: torch.Tensor) -> float:
    quantizer: Any = import_module("hqq.core.quantize").Quantizer
    codes, meta = quantizer.quantize(
        w, nbits=_HQQ[name], group_size=64, axis=1, device="cpu", compute_dtype=torch.float32
    )
    return _relative(quantizer.dequantize(codes, meta), w)


def _relative(made: torch.Tensor, w: torch.Tensor) -> float:
    difference = made.to(torch.float64).view(w.shape) - w.to(torch.float64)
    return float(torch.linalg.norm(difference) / torch.linalg.norm(w.to(torch.float64)))
