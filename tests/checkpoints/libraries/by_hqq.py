"""A checkpoint of HQQ's layers as `HQQLinear.state_dict` has them, dequantized in float64."""

from __future__ import annotations

import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer

from tests.checkpoints.libraries.made import Made, weight

LAYERS = (
    ("int8", 8, None),
    ("int5", 5, 32),
    ("int4", 4, 64),
    ("int4_float", 4, 16),
    ("int3", 3, 32),
    ("int2", 2, 16),
    ("ternary", 1.58, 32),
    ("int1", 1, 32),
)
"""Name, bits, group size; one whose name ends in float stores its codes as if they were floats."""


def make(n: int, k: int, seed: int) -> Made:
    """One module a kind, with a bias; `n * k` must be whole words of all."""
    tensors: dict[str, torch.Tensor] = {}
    expected: dict[str, torch.Tensor] = {}
    for at, (name, bits, size) in enumerate(LAYERS):
        linear = torch.nn.Linear(k, n, dtype=torch.float16)
        linear.weight.data = weight(n, k, seed + at, torch.float16)
        linear.bias.data = weight(1, n, seed + at, torch.float16)[0]
        config = BaseQuantizeConfig(
            nbits=bits, group_size=size, axis=1, view_as_float=name.endswith("float")
        )
        layer = HQQLinear(linear, config, compute_dtype=torch.float16, device="cpu")
        module = f"model.layers.{at}.mlp.{name}"
        state = layer.state_dict()
        tensors |= {
            f"{module}.{suffix}": tensor
            for suffix, tensor in state.items()
            if isinstance(tensor, torch.Tensor)
        }
        wide = {name: layer.meta[name].double() for name in ("scale", "zero")}
        meta = {**layer.meta, **wide, "compute_dtype": torch.float64}
        expected[module] = Quantizer.dequantize(layer.W_q, meta)
    quantization = {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}},
        "skip_modules": ["lm_head"],
    }
    return Made(tensors, quantization, expected)
