"""GPTQ, AWQ and AutoRound checkpoints made by their public libraries, against the libraries' own
dequantized weights: equal bit for bit. Runs where the extra `oracles` is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from tests.checkpoints.libraries import by_integers
from tests.checkpoints.making import LAYER, write_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own


def check(folder: Path, made: Any) -> str:
    """Reads the module of `made`, bit for bit; returns its format."""
    layer = humming.checkpoints.open(
        write_checkpoint(folder, made.tensors, made.quantization)
    ).layer(LAYER)
    expected = made.expected[LAYER]
    assert expected.dtype == torch.float16
    assert torch.equal(layer.dequantized(torch.float16), expected)
    assert torch.equal(layer.bias, made.tensors[f"{LAYER}.bias"])
    return layer.format


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("n", "k", "size"), [(64, 96, 32), (32, 320, 128), (96, 160, -1)])
def test_gptqmodel(
    tmp_path: Path, n: int, k: int, size: int, bits: int, act_order: bool, version: int
) -> None:
    pytest.importorskip("gptqmodel")
    made = by_integers.by_gptqmodel(n, k, size, bits, act_order, version)
    assert check(tmp_path, made) == f"uint{bits}{'' if size == -1 else f'g{size}'}z"


@pytest.mark.parametrize(("n", "k", "size"), [(32, 96, 32), (64, 256, 128), (40, 192, 64)])
@pytest.mark.parametrize("packing", ["gemm", "gemv"])
def test_gptqmodel_awq(tmp_path: Path, n: int, k: int, size: int, packing: str) -> None:
    pytest.importorskip("gptqmodel")
    check(tmp_path, by_integers.by_gptqmodel_awq(n, k, size, packing))


@pytest.mark.parametrize(("n", "k", "size"), [(32, 96, 32), (96, 192, 64), (64, 320, 160)])
@pytest.mark.parametrize("packing", ["gemm", "gemv"])
def test_auto_awq(tmp_path: Path, n: int, k: int, size: int, packing: str) -> None:
    pytest.importorskip("awq")
    check(tmp_path, by_integers.by_auto_awq(n, k, size, packing))


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("packing", ["auto_round", "auto_round:auto_gptq"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_auto_round(tmp_path: Path, packing: str, bits: int, symmetric: bool) -> None:
    pytest.importorskip("auto_round_extension")
    made = by_integers.by_auto_round(64, 160, 32, bits, packing, symmetric)
    assert check(tmp_path, made) == (f"int{bits}g32" if symmetric else f"uint{bits}g32z")
