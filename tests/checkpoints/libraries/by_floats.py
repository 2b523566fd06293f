"""Checkpoints of bitsandbytes, and of the MX floats of AutoRound, with the weights that they take
from them.
"""

from __future__ import annotations

from importlib import import_module

import torch

from tests.checkpoints.libraries.made import Made, weight
from tests.checkpoints.making import LAYER, under


def by_bitsandbytes(n: int, k: int, kind: str, nested: bool = False) -> Made:
    """A module in 4 bits ("fp4", "nf4") or in int8."""
    functional = import_module("bitsandbytes.functional")
    w = weight(n, k, n + k)
    if kind == "int8":
        codes, absmax, _ = functional.int8_vectorwise_quant(w.half())
        tensors = under(LAYER, {"weight": codes, "SCB": absmax})
        config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
        expected = functional.int8_vectorwise_dequant(codes, absmax)
        return Made(tensors, config, {LAYER: expected})
    packed, state = functional.quantize_4bit(
        w, blocksize=64, compress_statistics=nested, quant_type=kind
    )
    absmax = state.absmax
    if nested:
        absmax = functional.dequantize_blockwise(absmax, state.state2) + state.offset
    # The library's portable path: its CPU kernel is wrong where a block straddles rows (0.50).
    expected = import_module("bitsandbytes.backends.default.ops")._dequantize_4bit_compute(
        packed.reshape(-1), absmax, state.code, 64, (n, k), torch.bfloat16
    )
    parts = {f"weight.{name}": tensor for name, tensor in state.as_dict(packed=True).items()}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    return Made(under(LAYER, {"weight": packed, **parts}), config, {LAYER: expected})


def by_auto_round_mx(n: int, k: int, bits: int) -> Made:
    """AutoRound's mx_fp in 4 or 8 bits, of a weight that they hold exactly."""
    home = import_module("auto_round.export.export_to_autoround.qlinear_fp")
    generator = torch.Generator().manual_seed(n + k)
    exponents = torch.randint(-6, 4, (n, k // 32), generator=generator).float()
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = torch.randint(0, len(values), (n, k), generator=generator)
    w = values[codes] * torch.exp2(exponents).repeat_interleave(32, 1)
    linear = torch.nn.Linear(k, n)
    linear.weight.data = w
    module = home.QuantLinear(bits, 32, k, n, True, data_type="mx_fp")
    module.pack(linear, exponents.view(-1, 1), device="cpu")
    state = module.state_dict()
    state["weight_scale"] = state["weight_scale"].reshape(n, -1)
    config = {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": 32,
        "data_type": "mx_fp",
        "act_bits": 16,
        "packing_format": "auto_round:llm_compressor",
    }
    return Made(under(LAYER, state), config, {LAYER: w})
