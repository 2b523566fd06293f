"""FP8, gpt-oss and bitsandbytes checkpoints against their public libraries' own dequantized
weights. Runs where the extra `oracles` is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from tests.checkpoints.libraries import by_floats
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_fp8 import gpt_oss_tensors


def read(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Any:
    path = write_checkpoint(folder, under(LAYER, tensors), config)
    return humming.checkpoints.open(path).layer(LAYER)


def read_made(folder: Path, made: Any) -> Any:
    path = write_checkpoint(folder, made.tensors, made.quantization)
    return humming.checkpoints.open(path).layer(LAYER)


@pytest.mark.parametrize("scale_dtype", [torch.float32, torch.float8_e8m0fnu])
@pytest.mark.parametrize(("n", "k"), [(256, 384), (128, 128)])
def test_fp8_blocks(tmp_path: Path, n: int, k: int, scale_dtype: torch.dtype) -> None:
    home = pytest.importorskip("transformers.integrations.finegrained_fp8")
    weight = torch.randn(n, k).to(torch.float8_e4m3fn)
    scale = (torch.rand(n // 128, k // 128) + 0.01).to(scale_dtype)
    config = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    layer = read(tmp_path, {"weight": weight, "weight_scale_inv": scale}, config)
    expected = home._dequantize_fp8_weight(weight, scale, [128, 128], torch.float32)
    assert torch.equal(layer.dequantized(torch.float32), expected)


def test_gpt_oss(tmp_path: Path) -> None:
    home = pytest.importorskip("transformers.integrations.mxfp4")
    tensors = gpt_oss_tensors(2, 96, 64)
    block = "model.layers.0.mlp.experts"
    folder = write_checkpoint(tmp_path, tensors, {"quant_method": "mxfp4"})
    checkpoint = humming.checkpoints.open(folder)
    both = home.convert_moe_packed_tensors(
        tensors[f"{block}.gate_up_proj_blocks"], tensors[f"{block}.gate_up_proj_scales"]
    )
    down = home.convert_moe_packed_tensors(
        tensors[f"{block}.down_proj_blocks"], tensors[f"{block}.down_proj_scales"]
    )
    for expert in range(2):  # theirs are [experts, k, n], gate and up in turns
        for part, theirs in (
            ("gate_proj", both[expert, :, ::2]),
            ("up_proj", both[expert, :, 1::2]),
            ("down_proj", down[expert]),
        ):
            ours = checkpoint.layer(f"{block}.{expert}.{part}").dequantized(torch.bfloat16)
            assert torch.equal(ours, theirs.t())


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["fp4", "nf4"])
@pytest.mark.parametrize(("n", "k"), [(24, 128), (10, 96), (64, 192)])
def test_bitsandbytes_4_bits(tmp_path: Path, n: int, k: int, kind: str, nested: bool) -> None:
    pytest.importorskip("bitsandbytes")
    made = by_floats.by_bitsandbytes(n, k, kind, nested)
    layer = read_made(tmp_path, made)
    ours, expected = layer.dequantized(torch.bfloat16), made.expected[LAYER]
    if kind == "nf4":
        assert layer.note
        assert torch.equal(ours, expected)
        return
    assert layer.format.startswith("fp5e3m1g")
    # One rounding: their table's thirds and our absmax / 24 are rounded to fp32 each.
    torch.testing.assert_close(ours, expected, rtol=2**-8, atol=0)
    assert (ours != expected).double().mean() < 0.01


def test_bitsandbytes_int8(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    made = by_floats.by_bitsandbytes(24, 72, "int8")
    ours = read_made(tmp_path, made).dequantized(torch.float32)
    torch.testing.assert_close(ours, made.expected[LAYER], rtol=3e-7, atol=0)


@pytest.mark.parametrize("bits", [4, 8])
def test_auto_round_mx(tmp_path: Path, bits: int) -> None:
    pytest.importorskip("auto_round")
    made = by_floats.by_auto_round_mx(24, 96, bits)
    layer = read_made(tmp_path, made)
    assert layer.format == ("mxfp4" if bits == 4 else "mxfp8e4m3")
    assert torch.equal(layer.dequantized(torch.float32), made.expected[LAYER])
