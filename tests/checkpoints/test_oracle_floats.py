"""FP8, gpt-oss and bitsandbytes checkpoints against their public libraries' own dequantized
weights. Runs where the extra `oracles` is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_fp8 import gpt_oss_tensors


def read(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> Any:
    path = write_checkpoint(folder, under(LAYER, tensors), config)
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
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = torch.randn(n, k).bfloat16()
    packed, state = functional.quantize_4bit(
        weight, blocksize=64, compress_statistics=nested, quant_type=kind
    )
    tensors = {f"weight.{name}": t for name, t in state.as_dict(packed=True).items()}
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    layer = read(tmp_path, {"weight": packed, **tensors}, config)
    if k % 64:  # the library's CPU kernel is wrong where a block straddles rows (0.50)
        portable = pytest.importorskip("bitsandbytes.backends.default.ops")
        absmax = state.absmax
        if nested:
            absmax = functional.dequantize_blockwise(absmax, state.state2) + state.offset
        expected = portable._dequantize_4bit_compute(
            packed.reshape(-1), absmax, state.code, 64, (n, k), torch.bfloat16
        )
    else:
        expected = functional.dequantize_4bit(packed, state)
    ours = layer.dequantized(torch.bfloat16)
    if kind == "nf4":
        assert layer.note
        assert torch.equal(ours, expected)
        return
    assert layer.format.startswith("fp5e3m1g")
    # One rounding: their table's thirds and our absmax / 24 are rounded to fp32 each.
    torch.testing.assert_close(ours, expected, rtol=2**-8, atol=0)
    assert (ours != expected).double().mean() < 0.01


def test_bitsandbytes_int8(tmp_path: Path) -> None:
    functional = pytest.importorskip("bitsandbytes.functional")
    weight = torch.randn(24, 72).half()
    codes, absmax, _ = functional.int8_vectorwise_quant(weight)
    config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    layer = read(tmp_path, {"weight": codes, "SCB": absmax}, config)
    expected = functional.int8_vectorwise_dequant(codes, absmax)
    torch.testing.assert_close(layer.dequantized(torch.float32), expected, rtol=3e-7, atol=0)


@pytest.mark.parametrize(("kind", "bits", "size"), [("mx_fp", 4, 32), ("mx_fp", 8, 32)])
def test_auto_round_mx(tmp_path: Path, kind: str, bits: int, size: int) -> None:
    home = pytest.importorskip("auto_round.export.export_to_autoround.qlinear_fp")
    n, k = 24, 96
    exponents = torch.randint(-6, 4, (n, k // size)).float()
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[torch.randint(0, 8, (n, k))]
    weight = grid * torch.sign(torch.randn(n, k)) * torch.exp2(exponents).repeat_interleave(size, 1)
    linear = torch.nn.Linear(k, n)
    linear.weight.data = weight
    module = home.QuantLinear(bits, size, k, n, True, data_type=kind)
    module.pack(linear, exponents.view(-1, 1), device="cpu")
    tensors = {
        name: tensor.reshape(n, -1) if name == "weight_scale" else tensor
        for name, tensor in module.state_dict().items()
    }
    config = {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": size,
        "data_type": kind,
        "act_bits": 16,
        "packing_format": "auto_round:llm_compressor",
    }
    layer = read(tmp_path, tensors, config)
    assert layer.format == ("mxfp4" if bits == 4 else "mxfp8e4m3")
    assert torch.equal(layer.dequantized(torch.float32), weight)
