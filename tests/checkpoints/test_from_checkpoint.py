"""HummingLinear.from_checkpoint: layers of checkpoints multiply as their dequantized weights do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import humming
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, stream, under, write_checkpoint
from tests.checkpoints.test_fp8 import fp8
from tests.checkpoints.test_gptq import config, gptq_tensors


def symmetric() -> Any:
    tensors, _ = gptq_tensors(48, 256, 4, 128, 1)
    tensors["qzeros"] = stream(torch.full((2, 48), 7), 4)
    return {**tensors, "bias": torch.randn(48).half()}, config(4, 128)


def act_order() -> Any:
    return gptq_tensors(48, 160, 4, 32, 1, act_order=True)[0], config(4, 32)


def blocks() -> Any:
    tensors = {"weight": fp8(200, 168), "weight_scale_inv": torch.rand(2, 2) + 0.1}
    return tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.mark.parametrize("made", [symmetric, act_order, blocks])
def test_layers_multiply_as_their_weights_do(tmp_path: Path, made: Any) -> None:
    tensors, quantization = made()
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    layer = humming.HummingLinear.from_checkpoint(folder, LAYER, dtype=torch.float32)
    stored = humming.checkpoints.open(folder).layer(LAYER)
    x = torch.randn(3, stored.shape[1])
    expected = x.double() @ stored.dequantized().t()
    if stored.bias is not None:
        expected += stored.bias.double()
    torch.testing.assert_close(layer(x).double(), expected, rtol=1e-5, atol=1e-4)
    assert torch.equal(layer.quantized().dequantize(), stored.dequantized())


def test_the_model_says_the_type(tmp_path: Path) -> None:
    tensors, quantization = symmetric()
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    assert humming.HummingLinear.from_checkpoint(folder, LAYER).dtype == torch.bfloat16
    half = humming.HummingLinear.from_checkpoint(folder, LAYER, dtype=torch.float16)
    assert half.dtype == torch.float16
    share = humming.HummingLinear.from_checkpoint(folder, LAYER, "cpu", columns=(1, 2))
    assert (share.in_features, share.out_features, share.bias) == (128, 48, None)


def test_a_float_layer_needs_a_format(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {f"{LAYER}.weight": torch.randn(16, 128)}, None)
    with pytest.raises(HummingError, match="name a format"):
        humming.HummingLinear.from_checkpoint(folder, LAYER)
    layer = humming.HummingLinear.from_checkpoint(folder, LAYER, format="int4g128")
    assert layer.spec.format == "int4g128"


def test_the_package_has_checkpoints_when_asked(tmp_path: Path) -> None:
    code = "import humming, sys; assert 'torch' not in sys.modules; print(humming.checkpoints.open)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "function open" in found.stdout


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"rows": 3}, "rows"), ({"rows": ("a", 1)}, "rows"), ({"columns": (0, 1.5)}, "columns"),
     ({"name": 7}, "name"), ({"name": ""}, "name"), ({"name": None}, "name")],
)  # fmt: skip
def test_what_is_no_name_or_share_is_refused(wrong: dict[str, Any], words: str) -> None:
    folder = Path(__file__).parent / "data" / "compressed-tensors"
    asked = {"name": "model.layers.0.mlp.int3", **wrong}
    with pytest.raises(HummingError, match=f"`{words}` must be"):
        humming.HummingLinear.from_checkpoint(folder, **asked)
