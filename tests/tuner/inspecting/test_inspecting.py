"""humming-tune inspect: formats, scales and bits of each layer, what is not quantized and why, and
checkpoints that cannot be read.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import humming.checkpoints
from humming.errors import CheckpointError, HummingError
from tests.checkpoints.making import write_checkpoint
from tests.checkpoints.test_gptq import config as gptq_config
from tests.checkpoints.test_gptq import gptq_tensors
from tuner import inspecting
from tuner.cli import app

DATA = Path(__file__).parents[2] / "checkpoints" / "data"
N, K = 24, 64


def mxfp4(n: int = N, k: int = K) -> dict[str, torch.Tensor]:
    return {
        "weight_packed": torch.zeros(n, k // 2, dtype=torch.uint8),
        "weight_scale": torch.full((n, k // 32), 120, dtype=torch.uint8),
    }


def mx_config(**more: Any) -> dict[str, Any]:
    weights = {"num_bits": 4, "type": "float", "group_size": 32, "scale_dtype": "torch.uint8"}
    group = {"targets": ["Linear"], "weights": {**weights, "strategy": "group"}}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eleven blocks of one quantized layer, and layers as floats."""
    tensors = {
        f"model.layers.{block}.mlp.up_proj.{suffix}": tensor
        for block in range(11)
        for suffix, tensor in mxfp4().items()
    }
    for name in ("model.embed_tokens", "model.layers.0.self_attn.q_proj", "lm_head", "odd"):
        tensors[f"{name}.weight"] = torch.zeros(N, K, dtype=torch.bfloat16)
    tensors["model.norm.weight"] = torch.zeros(K)
    return write_checkpoint(tmp_path, tensors, mx_config(ignore=["re:.*self_attn.*", "lm_head"]))


def test_layers_and_totals(folder: Path) -> None:
    found = inspecting.inspect(folder)
    assert [row.name for row in found.layers[:3]] == [
        f"model.layers.{block}.mlp.up_proj" for block in (0, 1, 2)
    ]
    row = found.layers[10]
    assert (row.format, row.n, row.k, row.bits) == ("mxfp4", N, K, 4.25)
    assert row.scales == "float8_e8m0fnu [24, 2]" and not row.zero_points
    assert found.totals["weights"] == 11 * N * K
    assert found.totals["bytes"] == 11 * N * K * 4.25 / 8
    assert found.totals["formats"] == {"mxfp4": 11}
    assert found.totals["layers_read"] == 0
    in_files = 11 * (N * K // 2 + N * K // 32) + 4 * N * K * 2 + K * 4
    assert found.totals["file_bytes"] == in_files


def test_why_layers_are_floats(folder: Path) -> None:
    found = inspecting.inspect(folder)
    why = {row.name: row.why for row in found.unquantized}
    assert why["model.layers.0.self_attn.q_proj"] == "quantization_config.ignore lists it"
    assert why["lm_head"] == "quantization_config.ignore lists it"
    assert why["model.embed_tokens"].startswith("an embedding")
    assert why["odd"].startswith("its file holds floats")
    assert {row.dtype for row in found.unquantized} == {"bf16"}


def test_a_checkpoint_without_a_quantization(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {"a.weight": torch.zeros(4, 8)}, None)
    found = inspecting.inspect(folder)
    assert found.tool is None and found.totals["bits_per_weight"] is None
    assert found.unquantized[0].why == "the checkpoint has no quantization config"


@pytest.mark.parametrize("name", [path.name for path in sorted(DATA.iterdir())])
def test_bits_are_those_of_the_tensors(name: str) -> None:
    """Each type as dense as it is: what the layer would take in a file without padding."""
    found = inspecting.inspect(DATA / name)
    checkpoint = humming.checkpoints.open(DATA / name)
    assert found.totals["layers"] == len(checkpoint.quantized_names)
    for row in found.layers:
        weight: Any = checkpoint.layer(row.name).weight
        code = weight.weight_format.dtype.bits
        others = {field: t for field, t in weight.tensors.items() if field != "codes"}
        bits = code * row.n * row.k
        for field, tensor in others.items():
            integer = field == "zero_points" and not tensor.is_floating_point()
            bits += tensor.numel() * (code if integer else 8 * tensor.element_size())
        assert math.isclose(row.bits, bits / (row.n * row.k))
        assert weight.shape == (row.n, row.k)


def test_act_order_and_zero_points(tmp_path: Path) -> None:
    tensors, _ = gptq_tensors(24, 96, 4, 32, 1, act_order=True)
    named = {f"model.layers.0.mlp.up_proj.{suffix}": t for suffix, t in tensors.items()}
    config = gptq_config(4, 32, sym=False, desc_act=True)
    (row,) = inspecting.inspect(write_checkpoint(tmp_path, named, config)).layers
    assert row.act_order and row.format == "uint4g32z"
    assert row.zero_points == "uint8 [24, 3]"
    assert math.isclose(row.bits, 4 + (16 + 4) / 32 + 32 / 24)


def test_gptq_rules_that_leave_out(tmp_path: Path) -> None:
    tensors, _ = gptq_tensors(24, 96, 4, 32, 1)
    named = {f"model.layers.0.mlp.up_proj.{suffix}": t for suffix, t in tensors.items()}
    named["model.layers.0.mlp.down_proj.weight"] = torch.zeros(96, 24).half()
    config = {**gptq_config(4, 32), "dynamic": {r"-:.*\.down_proj": {}}}
    found = inspecting.inspect(write_checkpoint(tmp_path, named, config))
    assert found.unquantized[0].why == "quantization_config.dynamic leaves it out"


def test_the_command(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", str(folder)])
    assert shown.exit_code == 0
    assert "model.layers.*.mlp.up_proj" in shown.output and "4.250 bits a weight" in shown.output
    printed = CliRunner().invoke(app, ["inspect", str(folder), "--json"])
    report = json.loads(printed.output)
    assert report["tool"] == "compressed-tensors" and len(report["layers"]) == 11
    assert report["totals"]["bits_per_weight"] == 4.25


def test_layers_that_cannot_be_read(folder: Path) -> None:
    tensors = {
        f"model.layers.0.mlp.{name}.{suffix}": tensor
        for name in ("up_proj", "down_proj")
        for suffix, tensor in mxfp4().items()
    }
    tensors["model.layers.0.mlp.down_proj.weight_scale"] = torch.ones(N, 5, dtype=torch.uint8)
    path = write_checkpoint(folder / "other", tensors, mx_config())
    found = inspecting.inspect(path)
    assert len(found.layers) == 1
    assert "[24, 2], but is uint8 [24, 5]" in found.refused[0].why
    result = CliRunner().invoke(app, ["inspect", str(path), "--json"])
    assert isinstance(result.exception, CheckpointError)
    assert "1 of 2 are not" in str(result.exception)


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(HummingError, match="does not exist"):
        inspecting.inspect(tmp_path / "none")
    assert CliRunner().invoke(app, ["inspect"]).exit_code == 1  # UsageError, exit code 2 in main()
