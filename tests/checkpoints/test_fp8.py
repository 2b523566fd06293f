"""FP8 and MXFP4 checkpoints: scales of every shape, ragged blocks, fused parts, stacked experts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import CheckpointError, HummingError
from tests.checkpoints.making import LAYER, random_codes, under, write_checkpoint

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def fp8(n: int, k: int, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(n + k)).to(dtype)


def scales(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(7)) + 0.01


def open_layer(
    folder: Path, tensors: dict[str, torch.Tensor], name: str = LAYER, **config: Any
) -> Any:
    model = {"num_attention_heads": 4, "num_key_value_heads": 2}
    quantization = {"quant_method": "fp8", **config}
    path = write_checkpoint(folder, under(name, tensors), quantization, **model)
    return humming.checkpoints.open(path).layer(name)


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
@pytest.mark.parametrize(
    ("shape", "format"), [((), "fp8e4m3t"), ((1,), "fp8e4m3t"), ((40, 1), "fp8e4m3"),
                          ((40,), "fp8e4m3")],
)  # fmt: skip
def test_tensor_and_channel_scales(
    tmp_path: Path, name: str, shape: tuple[int, ...], format: str
) -> None:
    weight, scale = fp8(40, 24), scales(*shape)
    layer = open_layer(tmp_path, {"weight": weight, name: scale})
    assert layer.format == f"{format}-fp8e4m3"
    wide = scale.double().reshape(-1, 1)
    assert torch.equal(layer.dequantized(), weight.double() * wide)


@pytest.mark.parametrize("block", [(128, 128), (16, 16), (8, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e8m0fnu])
def test_blocks_with_ragged_edges(
    tmp_path: Path, block: tuple[int, int], dtype: torch.dtype
) -> None:
    n, k = 200, 168
    weight = fp8(n, k)
    scale = scales(-(-n // block[0]), -(-k // block[1])).to(dtype)
    layer = open_layer(
        tmp_path, {"weight": weight, "weight_scale_inv": scale}, weight_block_size=list(block)
    )
    wide = scale.float().double().repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
    assert torch.equal(layer.dequantized(), weight.double() * wide[:n, :k])
    letter = "b" if block[0] == block[1] else "g"
    assert layer.format == f"fp8e4m3{letter}{block[1]}-fp8e4m3g{block[1]}"


QKV, GATE_UP = "model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.gate_up_proj"


def test_fused_parts_keep_their_scales(tmp_path: Path) -> None:
    weight, scale = fp8(64, 24), scales(3)
    layer = open_layer(tmp_path, {"weight": weight, "weight_scale": scale}, QKV)
    rows = torch.tensor([32, 16, 16])  # 4 heads of q, 2 of k, 2 of v, 8 long
    wide = scale.double().repeat_interleave(rows).reshape(-1, 1)
    assert torch.equal(layer.dequantized(), weight.double() * wide)
    tensors = {"weight": weight, "weight_scale": scale[:2]}
    half = open_layer(tmp_path / "two", tensors, GATE_UP)
    wide = scale[:2].double().repeat_interleave(32).reshape(-1, 1)
    assert torch.equal(half.dequantized(), weight.double() * wide)


@pytest.mark.parametrize(
    ("name", "shape", "block"),
    [
        (LAYER, (2,), None),
        (LAYER, (3,), None),
        (LAYER, (1, 2), None),
        (QKV, (2,), None),
        (GATE_UP, (3,), None),
        (GATE_UP, (1, 2), [128, 128]),
        (LAYER, (2,), [128, 128]),
        (LAYER, (2, 1), [128, 128]),
    ],
)
def test_scales_that_fit_nothing_are_not_taken_for_parts(
    tmp_path: Path, name: str, shape: tuple[int, ...], block: list[int] | None
) -> None:
    tensors = {"weight": fp8(256, 384), "weight_scale_inv": scales(*shape)}
    with pytest.raises(HummingError, match="one a block of the config"):
        open_layer(tmp_path, tensors, name, weight_block_size=block)


def test_static_activations(tmp_path: Path) -> None:
    tensors = {
        "weight": fp8(16, 24, torch.float8_e5m2),
        "weight_scale": scales(1),
        "input_scale": torch.tensor([0.25, 0.5, 0.125]),
        "bias": torch.ones(16).bfloat16(),
    }
    layer = open_layer(tmp_path, tensors, activation_scheme="static")
    assert layer.format == "fp8e5m2t-fp8e5m2t"
    assert layer.activation_scale.tolist() == [0.5]
    assert layer.bias.tolist() == [1.0] * 16
    assert layer.quantized_weight("fp8e5m2t-fp8e5m2t").input_scale.tolist() == [0.5]
    with pytest.raises(CheckpointError, match="stored with a scale of x"):
        replace(layer, activation_scale=None).quantized_weight("fp8e5m2t-fp8e5m2t")


def test_fbgemm_and_layers_left_in_bf16(tmp_path: Path) -> None:
    other = "model.embed"
    tensors = {
        **under(LAYER, {"weight": fp8(16, 24), "weight_scale": scales(16, 1)}),
        f"{other}.weight": torch.randn(8, 4).bfloat16(),
        "model.norm.weight": torch.ones(8),
    }
    folder = write_checkpoint(tmp_path, tensors, {"quant_method": "fbgemm_fp8"})
    checkpoint = humming.checkpoints.open(folder)
    assert checkpoint.names == (LAYER, other)
    assert [layer.format for layer in checkpoint] == ["fp8e4m3-fp8e4m3", "bf16"]


def mx_values(codes: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    """float64 of e2m1 codes [.., k] and e8m0 bytes [.., k / 32]."""
    sign = 1.0 - 2.0 * (codes >> 3).double()
    powers = torch.exp2(exponents.double() - 127).repeat_interleave(32, dim=-1)
    return sign * E2M1[codes & 7] * powers


def test_experts_of_four_bits_beside_fp8(tmp_path: Path) -> None:
    codes = random_codes(24, 96, 4)
    exponents = random_codes(24, 3, 3) + 120
    packed = (codes[:, ::2] | (codes[:, 1::2] << 4)).to(torch.uint8)
    layer = open_layer(
        tmp_path,
        {
            "weight": packed.view(torch.int8),
            "scale": exponents.to(torch.uint8).view(torch.float8_e8m0fnu),
        },
        weight_block_size=[128, 128],
    )
    assert layer.format == "mxfp4"
    assert torch.equal(layer.dequantized(), mx_values(codes, exponents))


def gpt_oss_tensors(experts: int, wide: int, hidden: int) -> dict[str, torch.Tensor]:
    block = "model.layers.0.mlp.experts"
    tensors = {}
    for part, n, k in (("gate_up_proj", 2 * wide, hidden), ("down_proj", hidden, wide)):
        codes = random_codes(experts * n, k, 4, n)
        packed = (codes[:, ::2] | (codes[:, 1::2] << 4)).to(torch.uint8)
        exponents = (random_codes(experts * n, k // 32, 4) + 118).to(torch.uint8)
        tensors[f"{block}.{part}_blocks"] = packed.view(experts, n, k // 32, 16)
        tensors[f"{block}.{part}_scales"] = exponents.view(experts, n, k // 32)
        tensors[f"{block}.{part}_bias"] = torch.randn(experts, n).bfloat16()
    return tensors


def test_gpt_oss_experts_come_apart_and_together(tmp_path: Path) -> None:
    tensors = gpt_oss_tensors(3, 64, 96)
    block = "model.layers.0.mlp.experts"
    folder = write_checkpoint(tmp_path, tensors, {"quant_method": "mxfp4"}, shards=2)
    checkpoint = humming.checkpoints.open(folder)
    assert len(checkpoint.names) == 9
    bytes_ = tensors[f"{block}.gate_up_proj_blocks"].to(torch.int64)
    codes = torch.stack((bytes_ & 15, bytes_ >> 4), dim=-1).flatten(2)
    whole = mx_values(codes, tensors[f"{block}.gate_up_proj_scales"])
    bias = tensors[f"{block}.gate_up_proj_bias"]
    for expert in range(3):
        gate = checkpoint.layer(f"{block}.{expert}.gate_proj")
        assert torch.equal(gate.dequantized(), whole[expert, ::2])
        assert torch.equal(gate.bias, bias[expert, ::2])
        up = checkpoint.layer(f"{block}.{expert}.up_proj")
        assert torch.equal(up.dequantized(), whole[expert, 1::2])
    stacked = checkpoint.experts(block, ("gate_proj", "up_proj"))
    both = torch.cat((whole[2, ::2], whole[2, 1::2]))
    assert len(stacked) == 3
    assert torch.equal(stacked[2].dequantized(), both)
    downs = checkpoint.experts(block, "down_proj", columns=(1, 2))
    assert downs[0].shape == (96, 32)
    assert downs[0].bias is None


@pytest.mark.parametrize(
    ("tensors", "config", "said"),
    [
        ({"weight_scale": torch.tensor([float("nan")])}, {}, "NaN or infinity"),
        ({"weight_scale": torch.tensor([0.0])}, {}, "a scale of 0"),
        ({"weight_scale": torch.ones(5)}, {}, "one a part"),
        ({"weight_scale_inv": torch.ones(3, 3)}, {"weight_block_size": [16, 16]}, r"got \[3, 3\]"),
        ({"weight_scale_inv": torch.ones(3, 3)}, {"weight_block_size": [16]}, "two positive"),
        ({"weight_scale": torch.ones(1, dtype=torch.int32)}, {}, "must be float32"),
        ({"weight_scale": torch.ones(1)}, {"activation_scheme": "static"}, "input_scale"),
        ({"weight": torch.ones(16, 24), "weight_scale": torch.ones(1)}, {}, "float8_e4m3fn"),
        (
            {"weight": torch.full((16, 24), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn),
             "weight_scale": torch.ones(1)}, {}, "`weight` must be finite",
        ),
        (
            {"weight_scale": torch.ones(1), "input_scale": torch.zeros(1)},
            {"activation_scheme": "static"}, "above 0",
        ),
    ],
)  # fmt: skip
def test_damaged_tensors_are_one_sentence(
    tmp_path: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any], said: str
) -> None:
    with pytest.raises(HummingError, match=said) as caught:
        open_layer(tmp_path, {"weight": fp8(16, 24), **tensors}, **config)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["expert", "one", "block", "parts"])
def test_stacked_experts(tmp_path: Path, kind: str, transposed: bool) -> None:
    block, experts, wide, hidden = "model.layers.0.mlp.experts", 3, 40, 64
    tensors: dict[str, torch.Tensor] = {}
    wholes = {}
    for home, n, k in (("gate_up_proj", 2 * wide, hidden), ("down_proj", hidden, wide)):
        codes = torch.randn(experts, n, k).to(torch.float8_e4m3fn)
        shape = {
            "expert": (experts,),
            "one": (1,),
            "block": (experts, -(-n // 32), -(-k // 32)),
            "parts": (experts, 2 if home == "gate_up_proj" else 1, 1),
        }[kind]
        scale = torch.rand(shape) + 0.1
        wide_scale = scale.double().view(-1, 1, 1) if kind in ("expert", "one") else scale.double()
        if kind == "block":
            wide_scale = wide_scale.repeat_interleave(32, 1).repeat_interleave(32, 2)[:, :n, :k]
        elif kind == "parts":
            wide_scale = wide_scale.repeat_interleave(n // scale.shape[1], 1)
        wholes[home] = codes.double() * wide_scale
        tensors[f"{block}.{home}"] = codes.transpose(1, 2) if transposed else codes
        turned = transposed and scale.ndim == 3
        tensors[f"{block}.{home}_scale_inv"] = scale.transpose(1, 2) if turned else scale
        tensors[f"{block}.{home}_activation_scale"] = torch.arange(1.0, experts + 1)
        tensors[f"{block}.{home}_bias"] = torch.randn(experts, n)
    quantization = {"quant_method": "fp8", "activation_scheme": "static"}
    if kind == "block":
        quantization["weight_block_size"] = [32, 32]
    folder = write_checkpoint(tmp_path, tensors, quantization, hidden_size=hidden)
    checkpoint = humming.checkpoints.open(folder)
    assert len(checkpoint.names) == 9
    for expert in range(experts):
        parts = {
            "gate_proj": wholes["gate_up_proj"][expert, :wide],
            "up_proj": wholes["gate_up_proj"][expert, wide:],
            "down_proj": wholes["down_proj"][expert],
        }
        for part, expected in parts.items():
            layer = checkpoint.layer(f"{block}.{expert}.{part}")
            assert torch.equal(layer.dequantized(), expected)
            assert layer.activation_scale.tolist() == [expert + 1]
        both = checkpoint.layer([f"{block}.{expert}.{part}_proj" for part in ("gate", "up")])
        assert torch.equal(both.dequantized(), wholes["gate_up_proj"][expert])
        assert torch.equal(both.bias, tensors[f"{block}.gate_up_proj_bias"][expert])
    tensors[f"{block}.down_proj_bias"][2, 5] = torch.inf
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, tensors, quantization, hidden_size=hidden)
    )
    with pytest.raises(CheckpointError, match=r"down_proj_bias` must be finite"):
        checkpoint.layer(f"{block}.2.down_proj")


@pytest.mark.parametrize("lost", ["gate_up_proj_scale_inv", "down_proj_scale_inv"])
def test_stacked_experts_without_scales_are_refused(tmp_path: Path, lost: str) -> None:
    block = "model.layers.0.mlp.experts"
    tensors = {
        f"{block}.gate_up_proj": torch.randn(2, 80, 64).to(torch.float8_e4m3fn),
        f"{block}.gate_up_proj_scale_inv": torch.ones(2),
        f"{block}.down_proj": torch.randn(2, 64, 40).to(torch.float8_e4m3fn),
        f"{block}.down_proj_scale_inv": torch.ones(2),
    }
    del tensors[f"{block}.{lost}"]
    folder = write_checkpoint(tmp_path, tensors, {"quant_method": "fp8"}, hidden_size=64)
    checkpoint = humming.checkpoints.open(folder)
    assert len(checkpoint.quantized_names) == 6
    with pytest.raises(CheckpointError, match=f"must hold a tensor `{block}.{lost}`"):
        list(checkpoint)


@pytest.mark.parametrize("end", ["blocks", "scales"])
def test_gpt_oss_experts_without_blocks_or_scales_are_refused(tmp_path: Path, end: str) -> None:
    tensors, lost = gpt_oss_tensors(2, 32, 64), f"model.layers.0.mlp.experts.down_proj_{end}"
    del tensors[lost]
    folder = write_checkpoint(tmp_path, tensors, {"quant_method": "mxfp4"})
    checkpoint = humming.checkpoints.open(folder)
    assert len(checkpoint.quantized_names) == 6
    with pytest.raises(CheckpointError, match=f"must hold a tensor `{lost}`"):
        list(checkpoint)


def test_gpt_oss_biases_must_be_finite(tmp_path: Path) -> None:
    block, tensors = "model.layers.0.mlp.experts", gpt_oss_tensors(2, 32, 64)
    tensors[f"{block}.gate_up_proj_bias"][1, 3] = torch.nan
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, tensors, {"quant_method": "mxfp4"})
    )
    checkpoint.layer(f"{block}.1.gate_proj")
    with pytest.raises(CheckpointError, match=rf"`{block}\.gate_up_proj_bias` must be finite"):
        checkpoint.layer(f"{block}.1.up_proj")


def test_a_weight_of_codes_without_scales_counts_as_quantized(tmp_path: Path) -> None:
    other = "model.layers.1.mlp.up_proj"
    tensors = {
        **under(LAYER, {"weight": fp8(16, 24), "weight_scale": scales(1)}),
        f"{other}.weight": fp8(16, 24),
    }
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, tensors, {"quant_method": "fp8"})
    )
    assert checkpoint.quantized_names == checkpoint.names == (LAYER, other)
    with pytest.raises(CheckpointError, match=f"must hold a tensor `{other}.weight_scale`"):
        checkpoint.layer(other)
