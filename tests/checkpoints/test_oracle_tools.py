"""Checkpoints that public libraries write, read here, against the weights that they themselves take
from them: bit for bit, or within one rounding where they round more than once. Each runs where its
library is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from tests.checkpoints.making import LAYER, write_checkpoint

MODELOPT = (
    "FP8_DEFAULT_CFG",
    "FP8_PER_CHANNEL_PER_TOKEN_CFG",
    "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG",
    "NVFP4_DEFAULT_CFG",
    "MXFP4_DEFAULT_CFG",
    "MXFP8_DEFAULT_CFG",
    "W4A8_MXFP4_FP8_CFG",
    "INT8_WEIGHT_ONLY_CFG",
    "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
)
FIXED = {"is_dynamic": False}
GROUPS = {"ch_axis": -1, "group_size": 32, "scale_type": "float", **FIXED}
ROWS = {"ch_axis": 0, "scale_type": "float", **FIXED}
QUARK: dict[str, Callable[[Any], Any]] = {
    "int4g32": lambda c: c.Int4PerGroupSpec(symmetric=True, **GROUPS),
    "uint4g32z": lambda c: c.Uint4PerGroupSpec(symmetric=False, **GROUPS),
    "int4": lambda c: c.Int4PerChannelSpec(symmetric=True, **ROWS),
    "uint4z": lambda c: c.Uint4PerChannelSpec(symmetric=False, **ROWS),
    "int8": lambda c: c.Int8PerChannelSpec(symmetric=True, **ROWS),
    "int8g32": lambda c: c.Int8PerGroupSpec(symmetric=True, **GROUPS),
    "int2g32": lambda c: c.Int2PerGroupSpec(symmetric=True, **GROUPS),
    "fp8e4m3t": lambda c: c.FP8E4M3PerTensorSpec(observer_method="min_max", **FIXED),
    "fp8e4m3": lambda c: c.FP8E4M3PerChannelSpec(ch_axis=0, **FIXED),
    "mxfp4": lambda c: c.OCP_MXFP4Spec(ch_axis=-1, **FIXED),
    "mxfp6e2m3": lambda c: c.OCP_MXFP6E2M3Spec(ch_axis=-1, **FIXED),
    "mxfp6e3m2": lambda c: c.OCP_MXFP6E3M2Spec(ch_axis=-1, **FIXED),
    "two stages": lambda c: c.ProgressiveSpec(
        first_stage=c.FP8E4M3PerTensorSpec(observer_method="min_max", **FIXED),
        second_stage=c.Int4PerChannelSpec(symmetric=True, **ROWS),
    ),
}


def check(folder: Path, made: Any, ulps: float = 0.0) -> dict[str, str]:
    """Reads every module of `made`; returns their formats."""
    checkpoint = humming.checkpoints.open(folder)
    assert set(checkpoint.quantized_names) == set(made.expected)
    formats = {}
    for name, expected in made.expected.items():
        layer = checkpoint.layer(name)
        assert layer.quantized, layer.note
        ours = layer.dequantized(expected.dtype)
        bound = ulps * torch.finfo(expected.dtype).eps * expected.abs()
        wrong = int(((ours - expected).abs() > bound).sum())
        assert wrong == 0, f"{name} {layer.format}: {wrong} of {ours.numel()} differ"
        bias = made.tensors.get(f"{name}.bias")
        assert bias is None or torch.equal(layer.bias, bias)
        formats[name.rpartition(".")[2]] = layer.format
    return formats


@pytest.mark.parametrize(("n", "k"), [(19, 96), (33, 32), (40, 160)])
def test_compressed_tensors(tmp_path: Path, n: int, k: int) -> None:
    pytest.importorskip("compressed_tensors")
    from tests.checkpoints.libraries.by_compressed_tensors import make

    made = make(n, k, seed=n)
    formats = check(write_checkpoint(tmp_path, made.tensors, made.quantization), made)
    assert formats["w8a8"] == "int8-int8" and formats["w4a8"] == "int4g32-int8"
    assert formats["fp8_tensor"] == "fp8e4m3t-fp8e4m3t"
    assert formats["fp8_block"] == "fp8e4m3b16" and formats["fp8_flat_block"] == "fp8e4m3g16"


@pytest.mark.parametrize(("n", "k"), [(16, 96), (8, 160), (24, 64)])
def test_hqq(tmp_path: Path, n: int, k: int) -> None:
    pytest.importorskip("hqq")
    from tests.checkpoints.libraries.by_hqq import make

    made = make(n, k, seed=k)
    formats = check(write_checkpoint(tmp_path, made.tensors, made.quantization), made)
    assert formats["int8"] == "uint8zf" and formats["int3"] == "uint3g32zf"
    straddling = {96: "uint4g32zf", 160: "uint4g32zf", 64: "uint4zf"}
    assert formats["int4"] == straddling[k]


@pytest.mark.parametrize(("n", "k"), [(32, 96), (208, 160)])
def test_torchao(tmp_path: Path, n: int, k: int) -> None:
    pytest.importorskip("torchao")
    from tests.checkpoints.libraries.by_torchao import make

    made = make(n, k, seed=k)
    folder = write_checkpoint(tmp_path, made.tensors, made.quantization, metadata=made.metadata)
    formats = check(folder, made)
    assert formats["int4_groups"] == "int4g32" and formats["nvfp4_swizzled"] == "nvfp4"


@pytest.mark.parametrize("scheme", MODELOPT)
def test_modelopt(tmp_path: Path, scheme: str) -> None:
    pytest.importorskip("modelopt")
    from tests.checkpoints.libraries.by_models import by_modelopt

    made = by_modelopt(tmp_path / "made", scheme, hidden=256, intermediate=384)
    folder = write_checkpoint(tmp_path, made.tensors, made.quantization)
    ulps = 1.0 if "NVFP4" in scheme else 0.0  # it rounds the product of both scales to fp32
    formats = check(folder, made, ulps)
    assert len(formats) == 7


@pytest.mark.parametrize("kind", ["Llama4", "GptOss"])
@pytest.mark.parametrize("scheme", ["FP8_DEFAULT_CFG", "NVFP4_DEFAULT_CFG"])
def test_experts_of_modelopt(tmp_path: Path, scheme: str, kind: str) -> None:
    pytest.importorskip("modelopt")
    from tests.checkpoints.libraries.by_models import experts_by_modelopt

    made = experts_by_modelopt(tmp_path / "made", scheme, kind)
    model = {"Llama4": "llama4_text", "GptOss": "gpt_oss"}[kind]
    folder = write_checkpoint(tmp_path, made.tensors, made.quantization, model_type=model)
    checkpoint = humming.checkpoints.open(folder)
    assert set(made.expected) <= set(checkpoint.quantized_names) and len(made.expected) == 12
    for name, expected in made.expected.items():
        ours = checkpoint.layer(name).dequantized(expected.dtype)
        assert bool(((ours - expected).abs() <= 2.0**-23 * expected.abs()).all()), name


@pytest.mark.parametrize("pack", ["reorder", "order"])
@pytest.mark.parametrize("scheme", QUARK)
def test_quark(tmp_path: Path, scheme: str, pack: str) -> None:
    pytest.importorskip("quark.torch")
    from tests.checkpoints.libraries.by_models import by_quark

    if pack == "order" and "int4" not in scheme:
        pytest.skip("only codes of 4 bits have an order")
    made = by_quark(tmp_path / "made", lambda c: QUARK[scheme](c).to_quantization_spec(), 64, pack)
    folder = write_checkpoint(tmp_path, made.tensors, made.quantization)
    formats = check(folder, made)
    assert set(formats.values()) == {"int4" if scheme == "two stages" else scheme}


@pytest.mark.parametrize("kind", ["autobitlinear", "bitlinear"])
@pytest.mark.parametrize(("n", "k"), [(8, 20), (132, 36)])
def test_bitnet(tmp_path: Path, n: int, k: int, kind: str) -> None:
    home = pytest.importorskip("transformers.integrations.bitnet")
    codes = torch.randint(-1, 2, (n, k), generator=torch.Generator().manual_seed(n)).float()
    packed, scale = home.pack_weights(codes.clone()), torch.tensor([0.37], dtype=torch.bfloat16)
    config = {"quant_method": "bitnet", "linear_class": kind, "quantization_mode": "offline"}
    tensors = {f"{LAYER}.weight": packed, f"{LAYER}.weight_scale": scale}
    layer = humming.checkpoints.open(write_checkpoint(tmp_path, tensors, config)).layer(LAYER)
    expected = codes * scale.float() if kind == "autobitlinear" else codes / scale.float()
    assert torch.equal(layer.dequantized(torch.float32), expected)
    assert layer.format == "int2-int8"


def test_bitnet_online(tmp_path: Path) -> None:
    home = pytest.importorskip("transformers.integrations.bitnet")
    w = torch.randn(12, 20, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    config = {"quant_method": "bitnet", "quantization_mode": "online"}
    tensors = {f"{LAYER}.weight": w, "model.embed_tokens.weight": w.clone()}
    checkpoint = humming.checkpoints.open(write_checkpoint(tmp_path, tensors, config))
    assert checkpoint.quantized_names == (LAYER,)
    expected = home.WeightQuant.apply(w)
    assert torch.equal(checkpoint.layer(LAYER).dequantized(torch.bfloat16), expected)
