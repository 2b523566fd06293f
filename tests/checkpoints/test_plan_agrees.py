"""What is planned from a config is what is read from its tensors: one format for a layer, whichever
half of the project looks at it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.checkpoints.config.config_file import read_config
from humming.checkpoints.config.text_config import text_config
from tests.checkpoints.making import LAYER, stream, under, write_checkpoint
from tests.checkpoints.test_awq import config as awq_config
from tests.checkpoints.test_awq import gemm_tensors
from tests.checkpoints.test_fp8 import fp8, scales
from tests.checkpoints.test_gptq import config, gptq_tensors
from tuner.workload.quantization import read_quantization


def signed(tensors: dict[str, torch.Tensor], bits: int) -> dict[str, torch.Tensor]:
    groups, n = tensors["scales"].shape
    middle = torch.full((groups, n), (1 << (bits - 1)) - 1)
    return {**tensors, "qzeros": stream(middle, bits)}


def auto_round(bits: int, size: int, **more: Any) -> dict[str, Any]:
    return {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": size,
        "packing_format": "auto_round:auto_gptq",
        **more,
    }


def weight_and(scale: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"weight": fp8(32, 96), "weight_scale": scale, "input_scale": scales(1)}


GPTQ = gptq_tensors(32, 96, 4, 32, 1)[0]
THREE = gptq_tensors(32, 96, 3, 96, 1)[0]
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}


@pytest.mark.parametrize(
    ("tensors", "quantization"),
    [
        (signed(GPTQ, 4), config(4, 32, sym=True)),
        (GPTQ, config(4, 32, sym=False)),
        (signed(THREE, 3), config(3, -1, sym=True)),
        (GPTQ, config(8, 64, sym=True, dynamic={r"+:.*down.*": {
            "bits": 4, "group_size": 32, "sym": False}})),
        (gemm_tensors(32, 96, 32)[0], awq_config(32)),
        (signed(GPTQ, 4), auto_round(4, 32)),
        (signed(THREE, 3), auto_round(8, 32, extra_config={LAYER: {"bits": 3, "group_size": -1}})),
        (weight_and(scales(1)), FP8),
        (weight_and(scales(1)), {**FP8, "activation_scheme": "static"}),
        (weight_and(scales(2, 6)), {**FP8, "weight_block_size": [16, 16]}),
        (weight_and(scales(32, 1)), {"quant_method": "fbgemm_fp8"}),
    ],
)  # fmt: skip
def test_config_and_tensors_say_one_format(
    tmp_path: Path, tensors: dict[str, torch.Tensor], quantization: dict[str, Any]
) -> None:
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    file = read_config(folder)
    planned, _ = read_quantization(file, text_config(file), None)
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert planned is not None
    scheme = planned.scheme((LAYER,))
    assert scheme is not None
    assert scheme.format == layer.format
