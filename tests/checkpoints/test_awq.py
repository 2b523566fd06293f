"""AWQ checkpoints in both packings, written here anew, nibble by nibble."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, random_codes, random_scales, under, write_checkpoint

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def _packed(codes: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    rows, columns = codes.shape
    out = torch.zeros(rows, columns // 8, dtype=torch.int64)
    for word in range(columns // 8):
        for place, column in enumerate(order):
            out[:, word] |= codes[:, 8 * word + column] << (4 * place)
    return (out - ((out >> 31) << 32)).to(torch.int32)


def gemm_tensors(n: int, k: int, size: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    groups = -(-k // size)
    codes, zeros = random_codes(k, n, 4), random_codes(groups, n, 4, 1)
    scales = random_scales(groups, n)
    group = torch.arange(k) // size
    weight = (codes - zeros[group]).double() * scales[group].double()
    tensors = {"qweight": _packed(codes, ORDER), "qzeros": _packed(zeros, ORDER), "scales": scales}
    return tensors, weight.t()


def gemv_tensors(n: int, k: int, size: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    groups, padded = -(-k // size), -(-k // size // 8) * 8
    codes, zeros = random_codes(n, k, 4), random_codes(n, groups, 4, 1)
    scales = random_scales(n, groups)
    group = torch.arange(k) // size
    weight = (codes - zeros[:, group]).double() * scales[:, group].double()
    wide = torch.nn.functional.pad(zeros, (0, padded - groups))
    tensors = {
        "qweight": _packed(codes, tuple(range(8))),
        "qzeros": _packed(wide, tuple(range(8))),
        "scales": torch.nn.functional.pad(scales, (0, padded - groups)),
    }
    return tensors, weight


def config(size: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "awq", "bits": 4, "group_size": size, "zero_point": True, **more}


@pytest.mark.parametrize(
    ("n", "k", "size"), [(8, 32, 32), (40, 96, 32), (24, 200, 64), (64, 130, 128)]
)
@pytest.mark.parametrize("version", ["gemm", "gemv", None])
def test_weights_are_exact(tmp_path: Path, n: int, k: int, size: int, version: str | None) -> None:
    if version == "gemv":
        k -= k % 8
    tensors, weight = (gemv_tensors if version == "gemv" else gemm_tensors)(n, k, size)
    tensors["bias"] = torch.arange(n).half()
    more = {} if version is None else {"version": version}
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), config(size, **more))
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert layer.format == f"uint4g{size}z"
    assert torch.equal(layer.dequantized(), weight)
    assert layer.bias is not None
    assert torch.equal(layer.bias, tensors["bias"])


def test_lost_zero_points_are_missed(tmp_path: Path) -> None:
    tensors, _ = gemm_tensors(16, 64, 64)
    del tensors["qzeros"]
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), config(64))
    with pytest.raises(HummingError, match="qzeros"):
        humming.checkpoints.open(folder).layer(LAYER)


def test_old_keys_and_no_zero_points(tmp_path: Path) -> None:
    tensors, _ = gemm_tensors(16, 64, 64)
    del tensors["qzeros"]
    old = {"quant_method": "awq", "w_bit": 4, "q_group_size": -1, "zero_point": False}
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), old)
    layer = humming.checkpoints.open(folder).layer(LAYER)
    codes = random_codes(64, 16, 4).t()
    assert layer.format == "int4"
    assert torch.equal(layer.weight.codes, (codes - 8).to(torch.int8))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": 8}, "`quantization_config.bits` must be 4 for AWQ"),
        ({"version": "gemv_fast"}, "must be gemm or gemv"),
        ({"group_size": 64}, r"\[1, 16\], but is float16 \[2, 16\]"),
        ({"version": "gemv", "group_size": 1}, "scales"),
    ],
)
def test_bad_configs_are_one_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    tensors, _ = gemm_tensors(16, 64, 32)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), {**config(32), **change})
    with pytest.raises(HummingError, match=said) as caught:
        humming.checkpoints.open(folder).layer(LAYER)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
