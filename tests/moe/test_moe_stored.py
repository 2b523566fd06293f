"""Blocks of experts of checkpoints whose sizes other engines trip over: 4-bit weights with 8-bit
activations and a width of 640; a GPTQ model of 512 experts, past 2^31 elements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import humming
from humming.quantize.activations import requantized
from humming.spec.formats import QuantFormat
from tests.checkpoints.making import random_codes, random_scales, stream, under, write_checkpoint
from tests.checkpoints.test_gptq import config as gptq_config
from tests.checkpoints.test_gptq import gptq_tensors

BLOCK = "model.layers.0.mlp"
PARTS = ("gate_proj", "up_proj", "down_proj")


def qwen(hidden: int, width: int, experts: int, top_k: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3_moe",
        "hidden_size": hidden,
        "moe_intermediate_size": width,
        "num_experts": experts,
        "num_experts_per_tok": top_k,
        "norm_topk_prob": True,
        "hidden_act": "silu",
        "num_hidden_layers": 1,
    }


def answer(moe: humming.HummingMoE, x: torch.Tensor, format: str) -> torch.Tensor:
    """float64 of a block, x and what lies between rounded as the format says."""
    activation = QuantFormat.parse(format).activation
    ids, weights = moe.choose(x)
    ups, downs = moe.experts.up.quantized(), moe.experts.down.quantized()
    first = moe.experts.first_expert
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token, (chosen, shares) in enumerate(zip(ids.tolist(), weights.tolist(), strict=True)):
        for expert, share in zip(chosen, shares, strict=True):
            if first <= expert < first + len(ups):
                row = requantized(x[token : token + 1], activation).double()
                gate, up = (row @ ups[expert - first].dequantize().T).chunk(2, dim=-1)
                middle = requantized((functional.silu(gate) * up).to(x.dtype), activation)
                wide = middle.double() @ downs[expert - first].dequantize().T
                out[token] += share * wide[0]
    return out


@pytest.fixture(scope="module")
def w4a8(tmp_path_factory: Any) -> Path:
    hidden, width, experts = 128, 640, 4
    tensors = {f"{BLOCK}.gate.weight": torch.randn(experts, hidden) / 8}
    for expert in range(experts):
        for place, part in enumerate(PARTS):
            n, k = (hidden, width) if part == "down_proj" else (width, hidden)
            own = {
                "weight_packed": stream(random_codes(n, k, 4, 3 * expert + place), 4),
                "weight_scale": random_scales(n, k // 128, 3 * expert + place),
                "weight_shape": torch.tensor([n, k]),
            }
            tensors |= under(f"{BLOCK}.experts.{expert}.{part}", own)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    inputs = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    scheme = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    quantization = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": scheme},
        "ignore": ["re:.*gate$"],
    }
    folder: Path = tmp_path_factory.mktemp("w4a8")
    return write_checkpoint(folder, tensors, quantization, **qwen(hidden, width, experts, 2))


def check_w4a8(folder: Path, format: str, device: str, dtype: torch.dtype, most: float) -> None:
    x = torch.randn(9, 128, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    total, wanted = 0.0, 0.0
    for tp in ((0, 1), (0, 2), (1, 2)):
        moe = humming.HummingMoE.from_checkpoint(
            folder, BLOCK, device=device, dtype=dtype, format=format, tp=tp
        )
        assert moe.experts.down.spec.k == 640 // tp[1]
        with torch.inference_mode():
            out, exact = moe(x).double(), answer(moe, x, format)
        assert float((out - exact).norm()) < most * float(exact.norm()), tp
        total, wanted = (out, exact) if tp == (0, 1) else (total - out, wanted)
    assert float(total.norm()) < 0.05 * float(wanted.norm())  # ranks round what they share


def test_4_bit_weights_with_8_bit_activations_and_a_width_of_640(w4a8):
    check_w4a8(w4a8, "int4g128-int8", "cpu", torch.float32, 2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["int8", "fp8e4m3"])
def test_they_are_right_on_a_gpu_too(w4a8, activation):
    check_w4a8(w4a8, f"int4g128-{activation}", "cuda", torch.float16, 2e-2)


@pytest.fixture(scope="module")
def gptq_512(tmp_path_factory: Any) -> tuple[Path, list[list[torch.Tensor]]]:
    """512 experts, of which the last one alone is not the first, and the weights of both: more than
    2^31 codes in the first projection."""
    hidden, width, experts = 4096, 520, 512
    tensors = {f"{BLOCK}.gate.weight": torch.randn(experts, hidden) / 64}
    made: list[list[torch.Tensor]] = [[], []]
    for part in PARTS:
        n, k = (hidden, width) if part == "down_proj" else (width, hidden)
        both = [gptq_tensors(n, k, 4, 64, 1, seed=seed) for seed in (1, 5)]
        for weights, (_, weight) in zip(made, both, strict=True):
            weights.append(weight)
        for expert in range(experts):
            own, _ = both[expert == experts - 1]
            copies = {name: tensor.clone() for name, tensor in own.items()}
            tensors |= under(f"{BLOCK}.experts.{expert}.{part}", copies)
    folder: Path = tmp_path_factory.mktemp("gptq512")
    quantization, sizes = gptq_config(4, 64), qwen(hidden, width, experts, 2)
    return write_checkpoint(folder, tensors, quantization, shards=2, **sizes), made


def check_512(case: Any, device: str, dtype: torch.dtype, most: float) -> None:
    folder, (first, last) = case
    moe = humming.HummingMoE.from_checkpoint(folder, BLOCK, device=device, dtype=dtype)
    spec = moe.experts.up.spec
    assert spec.experts * spec.n * spec.k > 2**31
    for m in (1, 9, 70):
        x = (torch.randn(m, 4096) / 64).to(dtype)
        weights = torch.rand(m, 2)
        ids = torch.stack([torch.full((m,), 511), torch.arange(m) * 5 % 511], dim=1)
        with torch.inference_mode():
            out = moe.experts(x.to(device), ids.to(device), weights.to(device)).cpu().double()
        wanted = torch.zeros(m, 4096, dtype=torch.float64)
        for place, (gate, up, down) in enumerate((last, first)):
            middle = functional.silu(x.double() @ gate.T) * (x.double() @ up.T)
            wanted += weights[:, place, None].double() * (middle @ down.T)
        error = (out - wanted).norm(dim=1) / wanted.norm(dim=1)
        assert float(error.max()) < most, m


@pytest.mark.slow
def test_a_gptq_model_of_512_experts_is_right_past_2_to_the_31(gptq_512):
    check_512(gptq_512, "cpu", torch.float32, 1e-4)


@pytest.mark.gpu
@pytest.mark.slow
def test_it_is_right_on_a_gpu_too(gptq_512):
    check_512(gptq_512, "cuda", torch.float16, 1e-2)
