"""Layers from headers alone: formats, types and shapes of those that are read, but no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.quantize.tensor import QuantizedTensor
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_awq import config as awq_config
from tests.checkpoints.test_awq import gemm_tensors, gemv_tensors
from tests.checkpoints.test_bitsandbytes import CONFIG, four_bits
from tests.checkpoints.test_fp8 import fp8, gpt_oss_tensors, scales
from tests.checkpoints.test_gptq import config, gptq_tensors
from tests.checkpoints.test_plan_agrees import FP8, GPTQ, auto_round, signed, weight_and


@pytest.mark.parametrize(
    ("tensors", "quantization"),
    [
        (signed(GPTQ, 4), config(4, 32, sym=True)),
        (GPTQ, config(4, 32, sym=False)),
        (gptq_tensors(32, 96, 3, 32, 1, True)[0], config(3, 32, sym=False, desc_act=True)),
        (GPTQ, auto_round(4, 32, sym=False)),
        (gemm_tensors(32, 96, 32)[0], awq_config(32)),
        (gemv_tensors(32, 96, 32)[0], awq_config(32, version="gemv")),
        (weight_and(scales(1)), {**FP8, "activation_scheme": "static"}),
        (weight_and(scales(32)), FP8),
        (weight_and(scales(2, 6)), {**FP8, "weight_block_size": [16, 16]}),
        (weight_and(scales(4, 3)), {**FP8, "weight_block_size": [8, 32]}),
        (four_bits(24, 96, "fp4", nested=True)[0], CONFIG),
        (four_bits(24, 96, "nf4")[0], CONFIG),
        ({"weight": torch.ones(8, 9, dtype=torch.int8), "SCB": torch.ones(8)}, CONFIG),
        ({"weight": fp8(8, 9).half(), "bias": torch.ones(8)}, FP8),
    ],
)
def test_headers_tell_what_weights_tell(
    tmp_path: Path, tensors: dict[str, torch.Tensor], quantization: dict[str, Any]
) -> None:
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    same_layers(folder)


def test_headers_of_experts(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, gpt_oss_tensors(2, 64, 96), {"quant_method": "mxfp4"})
    same_layers(folder)


def same_layers(folder: Path) -> None:
    bare = humming.checkpoints.open(folder, headers_only=True)
    read = list(humming.checkpoints.open(folder))
    assert len(bare) == len(read) > 0
    for ours, theirs in zip(bare, read, strict=True):
        assert (ours.name, ours.format, ours.shape) == (theirs.name, theirs.format, theirs.shape)
        assert (ours.bias is None) == (theirs.bias is None)
        assert ours.note == theirs.note
        if isinstance(theirs.weight, QuantizedTensor):
            assert isinstance(ours.weight, QuantizedTensor)
            expected = {name: (t.shape, t.dtype) for name, t in theirs.weight.tensors.items()}
            found = {name: (t.shape, t.dtype) for name, t in ours.weight.tensors.items()}
            assert found == expected
            assert all(tensor.is_meta for tensor in ours.weight.tensors.values())
        else:
            assert isinstance(ours.weight, torch.Tensor)
            assert ours.weight.is_meta
