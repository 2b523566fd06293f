"""HummingLinear.from_checkpoint, end to end on a CPU: layers of tools' own files multiply as their
dequantized weights do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import humming
import humming.checkpoints
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_hqq_torchao_bitnet import bitnet_tensors

DATA = Path(__file__).with_name("data")
ALL = [
    (path.parent.name, module)
    for path in sorted(DATA.glob("*/expected.json"))
    for module in json.loads(path.read_text())
]
SOME = ("w4a8", "hqq/model.layers.2.mlp.int4", "nvfp4/model.layers.0.mlp", "quark", "mxfp4")


def multiplies_exactly(folder: Path, name: str, **choices: Any) -> Any:
    layer = humming.HummingLinear.from_checkpoint(folder, name, dtype=torch.float32, **choices)
    stored = humming.checkpoints.open(folder).layer(name)
    weight = stored.dequantized()
    x = torch.randn(3, stored.shape[1], generator=torch.Generator().manual_seed(0))
    expected = x.double() @ weight.t()
    bound = x.double().abs() @ weight.abs().t()
    if stored.bias is not None:
        expected += stored.bias.double()
        bound += stored.bias.double().abs()
    with torch.inference_mode():
        error = (layer(x).double() - expected).abs()
    assert bool((error <= stored.shape[1] * 2.0**-24 * bound).all())
    return layer


@pytest.mark.parametrize(
    ("folder", "module"), [pair for pair in ALL if any(part in "/".join(pair) for part in SOME)]
)
def test_a_layer_of_each_tool(folder: str, module: str) -> None:
    multiplies_exactly(DATA / folder, module)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "module"), ALL)
def test_every_layer_of_every_tool(folder: str, module: str) -> None:
    multiplies_exactly(DATA / folder, module)


def test_bitnet(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, under(LAYER, bitnet_tensors(12, 40)[0]), {
        "quant_method": "bitnet", "linear_class": "autobitlinear",
    })  # fmt: skip
    assert "format=int2" in str(multiplies_exactly(folder, LAYER))


@pytest.mark.parametrize("m", [1, 5])
def test_activations_in_int8_where_they_are_named(m: int) -> None:
    """x is quantized as the kernels' own rule says: the weight's error alone is far below that."""
    name = "model.layers.4.mlp.w4a8"
    folder = DATA / "compressed-tensors"
    stored = humming.checkpoints.open(folder).layer(name)
    assert stored.format == "int4g32-int8"
    layer = humming.HummingLinear.from_checkpoint(
        folder, name, dtype=torch.float32, format=stored.format
    )
    x = torch.randn(m, stored.shape[1], generator=torch.Generator().manual_seed(1))
    scale = x.abs().amax(1, keepdim=True).double() / 127
    rounded = (x.double() / scale).round() * scale
    expected = rounded @ stored.dequantized().t()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-4)


def test_640_columns_and_other_sizes_that_engines_refuse(tmp_path: Path) -> None:
    """n = 2880 and k = 640 in groups of 128, and k = 2880, which no power of two but 64 divides."""
    for n, k in ((36, 640), (10, 2880)):
        tensors = {
            "weight": torch.ones(n, k, dtype=torch.int8),
            "weight_scale": torch.rand(n, -(-k // 128)) + 0.1,
        }
        args = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
        quantization = {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": ["Linear"], "weights": args}},
        }
        folder = write_checkpoint(tmp_path / str(k), under(LAYER, tensors), quantization)
        multiplies_exactly(folder, LAYER)
