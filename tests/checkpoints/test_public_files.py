"""Tiny checkpoints that public libraries wrote, in data/: readers give the very weights that the
libraries took from them. libraries/write_fixtures.py makes them anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

import humming.checkpoints

DATA = Path(__file__).with_name("data")
FOLDERS = sorted(path.name for path in DATA.iterdir())


def test_there_are_files_of_each_library() -> None:
    tools = {name.partition("-")[0] for name in FOLDERS}
    assert tools == {
        "autoround", "awq", "compressed", "gptq", "hqq", "modelopt", "quark", "torchao"
    }  # fmt: skip
    assert sum(file.stat().st_size for file in DATA.rglob("*.*")) < 80_000


@pytest.mark.parametrize("name", FOLDERS)
def test_weights_are_those_of_the_library(name: str) -> None:
    expected = json.loads((DATA / name / "expected.json").read_text())
    checkpoint = humming.checkpoints.open(DATA / name)
    assert set(checkpoint.quantized_names) == set(expected)
    for module, stored in expected.items():
        layer = checkpoint.layer(module)
        weight = layer.dequantized(getattr(torch, stored["dtype"])) + 0.0  # of -0 as of 0
        digest = hashlib.sha256(weight.contiguous().view(torch.uint8).numpy().tobytes())
        assert layer.quantized and digest.hexdigest() == stored["sha256"], module


@pytest.mark.parametrize("name", FOLDERS)
def test_headers_tell_the_same(name: str) -> None:
    read = humming.checkpoints.open(DATA / name)
    told = humming.checkpoints.open(DATA / name, headers_only=True)
    assert told.quantized_names == read.quantized_names
    for module in read.quantized_names:
        whole, outline = read.layer(module), told.layer(module)
        assert (outline.format, outline.shape) == (whole.format, whole.shape)
        for field, tensor in whole.weight.tensors.items():
            other = outline.weight.tensors[field]
            assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
