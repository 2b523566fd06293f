"""HQQ, torchao and BitNet: packings written anew, and what is refused. The libraries' own files are
in test_public_files.py and test_oracle_tools.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, random_codes, random_scales, under, write_checkpoint
from tests.checkpoints.test_fp8 import fp8, scales


def hqq_tensors(n: int, k: int, bits: int, size: int) -> tuple[Any, torch.Tensor]:
    """Runs of rows of [groups, size], the first in the highest bits."""
    groups = n * k // size
    codes, scale = random_codes(groups, size, bits), random_scales(groups, 1)
    zero = random_scales(groups, 1, 4) * 100
    field, wide = (3, 30) if bits == 3 else (bits, 8)
    each = wide // field
    padded = torch.nn.functional.pad(codes, (0, 0, 0, -groups % each))
    runs = padded.chunk(each)
    packed = sum(run << (field * (each - 1 - at)) for at, run in enumerate(runs))
    tensors = {
        "W_q": packed.to(torch.int32 if bits == 3 else torch.uint8),
        "scale": scale,
        "zero": zero,
        "shape": torch.tensor([n, k]),
        "nbits": torch.tensor(bits, dtype=torch.int32),
        "axis": torch.tensor(1, dtype=torch.int32),
    }
    weight = ((codes - zero.double()) * scale.double()).view(n, k)
    return tensors, weight


def open_(folder: Path, tensors: Any, metadata: Any = None, **config: Any) -> Any:
    path = write_checkpoint(folder, under(LAYER, tensors), config, metadata=metadata)
    return humming.checkpoints.open(path).layer(LAYER)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("n", "k", "size"), [(16, 96, 32), (8, 160, 64), (16, 64, 64)])
def test_hqq(tmp_path: Path, n: int, k: int, size: int, bits: int) -> None:
    tensors, weight = hqq_tensors(n, k, bits, size)
    if bits == 1 and n * k // size % 8:
        pytest.skip("HQQ packs whole bytes")
    found = open_(tmp_path, tensors, quant_method="hqq")
    assert torch.equal(found.dequantized(), weight)


def test_hqq_whose_numbers_stand_in_the_config(tmp_path: Path) -> None:
    tensors, weight = hqq_tensors(16, 64, 4, 32)
    both = torch.stack([tensors.pop("zero"), tensors.pop("scale")])
    tensors = {name: tensors[name] for name in ("W_q", "shape")} | {"zero_scale": both}
    params = {"weight_quant_params": {"nbits": 4, "axis": 1}}
    found = open_(tmp_path, tensors, quant_method="hqq", quant_config=params)
    assert torch.equal(found.dequantized(), weight)
    tagged = {"mlp.down_proj": params, "mlp.up_proj": {}}
    assert open_(tmp_path, tensors, quant_method="hqq", quant_config=tagged).format == "uint4g32zf"


def described(kind: str, **data: Any) -> dict[str, str]:
    return {f"{LAYER}.weight": json.dumps({"_type": kind, "_data": data})}


def torchao(folder: Path, tensors: Any, metadata: Any) -> Any:
    named = {f"_weight_{name}": tensor for name, tensor in tensors.items()}
    return open_(folder, named, metadata, quant_method="torchao")


def test_torchao_sums(tmp_path: Path) -> None:
    """Int4Tensor: q * s + z, which is (q - zero_point) * s within a rounding of z / s."""
    n, k, size = 12, 64, 32
    codes, scale = random_codes(n, k, 4) - 8, random_scales(2, n).to(torch.bfloat16)
    added = (random_scales(2, n, 5) * 3).to(torch.bfloat16)
    packed = ((codes[:, 0::2] & 15) | (codes[:, 1::2] & 15) << 4).to(torch.uint8)
    tensors = {"qdata": packed.view(torch.int8), "scale": scale, "zero_point": added}
    metadata = described("Int4Tensor", block_size=[1, size], shape=[n, k])
    found = torchao(tmp_path, tensors, metadata)
    wide = torch.arange(k) // size
    s, z = scale.double().t()[:, wide], added.double().t()[:, wide]
    bound = 2.0**-24 * (z.abs() + 8 * s)
    assert found.format == "uint4g32zf"
    assert bool(((found.dequantized() - (codes * s + z)).abs() <= bound).all())


def test_torchao_tiles(tmp_path: Path) -> None:
    """Words written lane by lane, as an mma instruction wants them."""
    n, k, size = 12, 200, 32
    high, wide = 16, 1024
    codes = torch.zeros(high, wide, dtype=torch.int64)
    codes[:n, :k] = random_codes(n, k, 4)
    words = torch.zeros(high // 8, wide // 128, 32, 4, dtype=torch.int64)
    for lane in range(32):
        for word in range(4):
            for place, value in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                step, half, column = value // 4, value // 2 % 2, value % 2
                at = word * 32 + step * 16 + half * 8 + lane % 4 * 2 + column
                part = codes[lane // 4 :: 8, at::128]
                words[:, :, lane, word] |= part << (4 * place)
    stored = (words - ((words >> 31) << 32)).to(torch.int32)
    both = torch.stack([random_scales(32, high), random_scales(32, high, 7)], 2).to(torch.bfloat16)
    metadata = described("Int4TilePackedTo4dTensor", block_size=[1, size], shape=[n, k])
    found = torchao(tmp_path, {"qdata": stored, "scale_and_zero": both}, metadata)
    groups = torch.arange(k) // size
    s, z = (both[:, :n, at].double().t()[:, groups] for at in (0, 1))
    exact = (codes[:n, :k] - 8) * s + z
    assert found.format == "uint4g32zf" and found.shape == (n, k)
    assert bool(((found.dequantized() - exact).abs() <= 2.0**-23 * (z.abs() + 8 * s)).all())


INT8 = {"qdata": torch.ones(6, 40, dtype=torch.int8), "scale": torch.ones(6, 1)}
ROWS = described("Int8Tensor", block_size=[1, 40])


@pytest.mark.parametrize(
    ("tensors", "metadata", "sentence"),
    [
        (INT8, None, "the file's metadata must describe"),
        (INT8, {f"{LAYER}.weight": "{"}, "the file's metadata must describe"),
        (INT8, described("NF4Tensor"), "must be one of Int8Tensor"),
        (INT8, described("Int8Tensor", block_size=[40]), "must be .rows, columns."),
        (INT8, described("Int8Tensor", block_size=[1, 20]), "must be .6, 2."),
        ({**INT8, "act_pre_scale": scales(40)}, ROWS, "act_pre_scale"),
        ({"qdata": fp8(6, 40), "scale": scales(2, 2)}, described("Float8Tensor"), "must be .1, 1."),
        (INT8, described("MXTensor", block_size=16), "`block_size` must be 32"),
    ],
)
def test_what_torchao_files_lack(
    tmp_path: Path, tensors: Any, metadata: Any, sentence: str
) -> None:
    with pytest.raises(HummingError, match=sentence) as caught:
        torchao(tmp_path, tensors, metadata)
    assert "\n" not in str(caught.value)


def bitnet_tensors(n: int, k: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    codes = random_codes(n, k, 8) % 3
    packed = sum(part << (2 * at) for at, part in enumerate(codes.chunk(4)))
    return {"weight": packed.to(torch.uint8), "weight_scale": torch.tensor([2.0])}, codes - 1


@pytest.mark.parametrize(("kind", "scale"), [("autobitlinear", 2.0), (None, 0.5)])
def test_bitnet(tmp_path: Path, kind: str | None, scale: float) -> None:
    tensors, codes = bitnet_tensors(12, 40)
    found = open_(tmp_path, tensors, quant_method="bitnet", linear_class=kind)
    assert found.format == "int2-int8"
    assert torch.equal(found.dequantized(), codes.double() * scale)


@pytest.mark.parametrize(
    ("changes", "config", "sentence"),
    [
        ({"weight": torch.full((3, 40), 255, dtype=torch.uint8)}, {}, "-1, 0 or 1"),
        ({"weight_scale": torch.zeros(1)}, {}, "above 0"),
        ({"rms_norm.weight": torch.ones(40)}, {}, "a norm inside"),
        ({}, {"use_rms_norm": True}, "a norm inside"),
        ({}, {"checkpoint_format": "bitblas"}, "a kernel's own"),
    ],
)
def test_what_bitnet_files_lack(tmp_path: Path, changes: Any, config: Any, sentence: str) -> None:
    tensors = {**bitnet_tensors(12, 40)[0], **changes}
    with pytest.raises(HummingError, match=sentence):
        open_(tmp_path, tensors, quant_method="bitnet", **config)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"axis": torch.tensor(0)}, "`axis` must be 1"),
        ({"nbits": torch.tensor(7)}, "`nbits` must be one of"),
        ({"quant_zero": torch.tensor(1)}, "must be floats"),
        ({"shape": torch.tensor([16, 65])}, "one a group"),
        ({"shape": torch.tensor([-16, -64])}, "`shape` must be of a weight"),
        ({"scale": torch.full((32, 1), torch.inf)}, "must be finite"),
    ],
)
def test_what_hqq_files_lack(tmp_path: Path, changes: Any, sentence: str) -> None:
    tensors = {**hqq_tensors(16, 64, 4, 32)[0], **changes}
    with pytest.raises(HummingError, match=sentence):
        open_(tmp_path, tensors, quant_method="hqq")
