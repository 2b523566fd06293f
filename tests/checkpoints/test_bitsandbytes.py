"""bitsandbytes checkpoints, written here from their published layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, random_codes, under, write_checkpoint

FP4 = torch.tensor([0, 0.0052083333, 0.6666667, 1.0, 0.3333333, 0.5, 0.1666667, 0.25])
CONFIG = {"quant_method": "bitsandbytes", "load_in_4bit": True}


def four_bits(
    n: int, k: int, kind: str, block: int = 64, nested: bool = False, **changes: Any
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A module's tensors and its weight in float32."""
    values = torch.cat((FP4, -FP4)) if kind == "fp4" else torch.linspace(-1, 1, 16) ** 3
    codes = random_codes(1, n * k, 4)[0]
    blocks = -(-n * k // block)
    absmax = torch.rand(blocks, generator=torch.Generator().manual_seed(3)) + 0.1
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": [n, k]}
    tensors = {"weight.absmax": absmax, "weight.quant_map": values}
    if nested:
        map2, codes2 = torch.linspace(-1, 1, 256), random_codes(1, blocks, 8, 5)[0]
        absmax2 = torch.rand(-(-blocks // 256)) * 0.1
        state |= {"nested_blocksize": 256, "nested_offset": 0.5, "nested_dtype": "float32"}
        tensors["weight.absmax"] = codes2.to(torch.uint8)
        tensors["weight.nested_absmax"], tensors["weight.nested_quant_map"] = absmax2, map2
        absmax = map2[codes2] * absmax2.repeat_interleave(256)[:blocks] + 0.5
    padded = torch.nn.functional.pad(codes, (0, n * k % 2))
    packed = ((padded[::2] << 4) | padded[1::2]).to(torch.uint8)
    tensors["weight"] = packed.reshape(-1, 1)
    text = json.dumps({**state, **changes}).encode()
    tensors[f"weight.quant_state.bitsandbytes__{kind}"] = torch.tensor(list(text)).to(torch.uint8)
    wide = absmax.repeat_interleave(block)[: n * k]
    return tensors, (values[codes] * wide).view(n, k)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("n", "k", "size"), [(24, 128, 64), (10, 96, 32), (3, 40, 8)])
def test_fp4_is_a_float_of_five_bits(
    tmp_path: Path, n: int, k: int, size: int, nested: bool
) -> None:
    tensors, weight = four_bits(n, k, "fp4", nested=nested)
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors), CONFIG)
    ).layer(LAYER)
    assert layer.format == f"fp5e3m1g{size}"
    # Their table has thirds, rounded to fp32; so has absmax / 24 here.
    torch.testing.assert_close(layer.dequantized(torch.float32), weight, rtol=3e-7, atol=0)


@pytest.mark.parametrize(("kind", "k"), [("nf4", 64), ("fp4", 37)])
def test_what_no_format_holds_is_given_as_floats(tmp_path: Path, kind: str, k: int) -> None:
    tensors, weight = four_bits(12, k, kind)
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors), CONFIG)
    ).layer(LAYER)
    assert not layer.quantized
    assert layer.note
    assert torch.equal(layer.weight, weight.bfloat16())


def test_int8(tmp_path: Path) -> None:
    codes = (random_codes(9, 21, 8) - 128).to(torch.int8)
    absmax = torch.rand(9) + 0.5
    tensors = {"weight": codes, "SCB": absmax, "weight_format": torch.tensor(0).to(torch.uint8)}
    folder = write_checkpoint(
        tmp_path, under(LAYER, tensors), {"quant_method": "bitsandbytes", "load_in_8bit": True}
    )
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert layer.format == "int8"
    expected = codes.double() * absmax.double()[:, None] / 127
    torch.testing.assert_close(layer.dequantized(), expected, rtol=2**-24, atol=0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": [24, 64, 2]}, "must say shape"),
        ({"shape": [24, -64]}, "must say shape"),
        ({"blocksize": "64"}, "must say shape"),
        ({"dtype": "int3"}, "must say shape"),
        ({"shape": [24, 128]}, "must hold 1536 bytes"),
        ({"blocksize": 32}, r"\[48\]"),
    ],
)
def test_damaged_states_are_one_sentence(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    tensors, _ = four_bits(24, 64, "fp4", **changes)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), CONFIG)
    with pytest.raises(HummingError, match=said) as caught:
        humming.checkpoints.open(folder).layer(LAYER)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_a_strange_map_is_refused(tmp_path: Path) -> None:
    tensors, _ = four_bits(8, 64, "fp4")
    tensors["weight.quant_map"] = torch.linspace(-1, 1, 16)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), CONFIG)
    with pytest.raises(HummingError, match="must be that of fp4"):
        humming.checkpoints.open(folder).layer(LAYER)
