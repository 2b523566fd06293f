"""compressed-tensors: the packing written anew bit by bit, groups by name and class, act-order,
what is refused. The library's own files are in test_public_files.py and test_oracle_tools.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, random_codes, random_scales, stream, under
from tests.checkpoints.making import write_checkpoint as write

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def config(weights: dict[str, Any], activations: Any = None, **more: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


def ints(bits: int, size: int | None = None, symmetric: bool = True, **more: Any) -> Any:
    scope = {"strategy": "group", "group_size": size} if size else {"strategy": "channel"}
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, **scope, **more}


def loose(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """int32 words of as many whole codes as fit."""
    each, rows = 32 // bits, codes.shape[0]
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % each)).view(rows, -1, each)
    words = (padded << (torch.arange(each) * bits)).sum(2)
    return (words - ((words >> 31) << 32)).to(torch.int32)


def packed(
    n: int, k: int, bits: int, size: int, pack: Any = stream, seed: int = 0
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Tensors with zero points, and the weight in float64."""
    groups = -(-k // size)
    codes, zeros = random_codes(n, k, bits, seed), random_codes(n, groups, bits, seed + 1)
    scales = random_scales(n, groups, seed + 2).to(torch.bfloat16)
    wide = torch.arange(k) // size
    weight = (codes - zeros[:, wide]).double() * scales.double()[:, wide]
    tensors = {
        "weight_packed": pack(codes, bits),
        "weight_scale": scales,
        "weight_zero_point": pack(zeros.t(), bits).t(),
        "weight_shape": torch.tensor([n, k]),
    }
    return tensors, weight


def layer(folder: Path, tensors: dict[str, torch.Tensor], quantization: Any, **model: Any) -> Any:
    path = write(folder, under(LAYER, tensors), quantization, **model)
    return humming.checkpoints.open(path).layer(LAYER)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize(("n", "k", "size"), [(19, 70, 32), (5, 257, 16), (33, 64, 64)])
def test_zero_points_and_ragged_groups(
    tmp_path: Path, n: int, k: int, size: int, bits: int
) -> None:
    tensors, weight = packed(n, k, bits, size)
    found = layer(tmp_path, tensors, config(ints(bits, size, symmetric=False)))
    assert found.format == f"uint{bits}g{size}z"
    assert torch.equal(found.dequantized(), weight)


@pytest.mark.parametrize("bits", [3, 5, 6, 7])
def test_whole_codes_a_word_as_old_versions_packed(tmp_path: Path, bits: int) -> None:
    tensors, weight = packed(21, 160, bits, 32, loose)
    found = layer(tmp_path, tensors, config(ints(bits, 32, symmetric=False), version="0.12.2"))
    assert torch.equal(found.dequantized(), weight)


@pytest.mark.parametrize(
    ("version", "pack"), [("0.12.2", loose), ("0.18.0", stream), (None, stream)]
)
def test_the_version_tells_where_widths_do_not(tmp_path: Path, version: Any, pack: Any) -> None:
    tensors, weight = packed(19, 20, 3, 20, pack)
    assert pack(random_codes(1, 20, 3), 3).shape == (1, 2)
    more = {} if version is None else {"version": version}
    found = layer(tmp_path, tensors, config(ints(3, 20, symmetric=False), **more))
    assert torch.equal(found.dequantized(), weight)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("is_packed", [True, False])
def test_act_order(tmp_path: Path, is_packed: bool, symmetric: bool) -> None:
    n, k, size = 12, 96, 32
    groups_of = torch.arange(k)[torch.randperm(k)] // size
    codes, zeros = random_codes(n, k, 4), random_codes(n, 3, 4, 5)
    zeros = torch.full_like(zeros, 8) if symmetric else zeros
    scales = random_scales(n, 3)
    tensors = {"weight_scale": scales, "weight_g_idx": groups_of.to(torch.int32)}
    if is_packed:
        tensors |= {"weight_packed": stream(codes, 4), "weight_shape": torch.tensor([n, k])}
        tensors["weight_zero_point"] = stream(zeros.t(), 4).t()
    else:
        tensors |= {"weight": (codes - 8).to(torch.int8)}
        tensors["weight_zero_point"] = (zeros - 8).to(torch.int8)
    if symmetric:
        del tensors["weight_zero_point"]
    found = layer(tmp_path, tensors, config(ints(4, size, symmetric, actorder="group")))
    weight = (codes - zeros[:, groups_of]).double() * scales.double()[:, groups_of]
    assert torch.equal(found.dequantized(), weight)
    assert found.weight.permutation is not None


def test_an_order_that_was_never_set(tmp_path: Path) -> None:
    tensors, weight = packed(8, 64, 4, 32)
    tensors["weight_g_idx"] = torch.full((64,), -1, dtype=torch.int32)
    found = layer(tmp_path, tensors, config(ints(4, 32, symmetric=False)))
    assert found.weight.permutation is None and torch.equal(found.dequantized(), weight)


def test_nvfp4(tmp_path: Path) -> None:
    n, k = 7, 48
    codes = random_codes(n, k, 4)
    scales = (random_scales(n, 3).float() * 9000).to(torch.float8_e4m3fn)
    tensors = {
        "weight_packed": (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8),
        "weight_scale": scales,
        "weight_global_scale": torch.tensor([1024.0]),  # its inverse is exact
        "input_global_scale": torch.tensor([256.0]),
    }
    args = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    found = layer(tmp_path, tensors, config(args, {**args, "dynamic": "local"}))
    values = torch.cat([E2M1, -E2M1])[codes]
    wide = scales.double().repeat_interleave(16, 1)
    assert found.format == "nvfp4-nvfp4" and float(found.activation_scale) == 1 / 256
    assert torch.equal(found.dequantized(), values * wide / 1024)


def test_names_go_before_classes_and_ignored_layers_are_floats(tmp_path: Path) -> None:
    eight = {"weight": torch.ones(6, 40, dtype=torch.int8), "weight_scale": torch.ones(6, 1)}
    four, weight = packed(6, 40, 4, 20)
    groups = {
        "by_class": {"targets": ["Linear"], "weights": ints(8)},
        "by_name": {
            "targets": [r"re:.*\.(up|down)_proj$", "exact"],
            "weights": ints(4, 20, symmetric=False),
        },
    }
    tensors = {**under("a.gate_proj", eight), **under("a.up_proj", four), **under("exact", four)}
    tensors["lm_head.weight"] = torch.ones(6, 40)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    quantization = {**config({}), "config_groups": groups, "ignore": ["lm_head"]}
    checkpoint = humming.checkpoints.open(write(tmp_path, tensors, quantization))
    assert checkpoint.layer("a.gate_proj").format == "int8"
    for name in ("a.up_proj", "exact"):
        assert torch.equal(checkpoint.layer(name).dequantized(), weight)
    assert checkpoint.layer("lm_head").format == "fp32"


@pytest.mark.parametrize(
    ("activations", "format"),
    [
        (None, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}, "int8-int8"),
        ({"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False}, "int8-int8t"),
        ({"num_bits": 8, "type": "int", "dynamic": True, "strategy": "token", "symmetric": False},
         "int8"),
        ({"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}, "int8-fp8e4m3"),
        ({"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128,
          "dynamic": True}, "int8-fp8e4m3g128"),
    ],
)  # fmt: skip
def test_activations(tmp_path: Path, activations: Any, format: str) -> None:
    tensors = {"weight": torch.ones(6, 40, dtype=torch.int8), "weight_scale": torch.ones(6, 1)}
    tensors["input_scale"] = torch.tensor(0.5)
    found = layer(tmp_path, tensors, config(ints(8), activations))
    assert found.format == format
    assert (found.activation_scale is None) is not format.endswith("t")


EIGHT = {"weight": torch.ones(6, 40, dtype=torch.int8), "weight_scale": torch.ones(6, 1)}
FOUR = packed(6, 40, 4, 20)[0]
ASYMMETRIC = ints(4, 20, symmetric=False)
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel"}


@pytest.mark.parametrize(
    ("tensors", "quantization", "sentence"),
    [
        ({**EIGHT, "weight_scale": torch.ones(5, 1)}, config(ints(8)), "must be .6, 1., but got"),
        ({**EIGHT, "weight_scale": torch.full((6, 1), torch.nan)}, config(ints(8)), "be finite"),
        ({**EIGHT, "weight_scale": torch.zeros(6, 1)}, config(ints(8)), "must not be 0"),
        ({**EIGHT, "weight": EIGHT["weight"] * 9}, config(ints(4)), "fit 4 bits, but got 9"),
        (EIGHT, config(ints(9)), "from 1 to 8, but got 9"),
        (EIGHT, config(FLOAT8), "must be float8_e4m3fn"),
        (EIGHT, config(ints(8, strategy="column")), "but got .column"),
        (EIGHT, {**config({}), "config_groups": {}}, "must target a module"),
        (EIGHT, config(ints(8), format="marlin-24"), "sparse weights have no kernels"),
        (FOUR, config(ints(3, 20, symmetric=False)), "words wide for k=40 and 3 bits"),
        ({**FOUR, "weight_shape": torch.tensor([6, 400])}, config(ASYMMETRIC), "weight_shape"),
        ({**FOUR, "weight_shape": torch.tensor([6, 0])}, config(ASYMMETRIC), "weight_shape"),
        (
            EIGHT,
            config(
                ints(8),
                transform_config={
                    "config_groups": {"r": {"apply": [{"targets": ["Linear"],
                                                       "location": "input"}]}}
                },
            ),
            "a transform of its input",
        ),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, tensors: Any, quantization: Any, sentence: str) -> None:
    with pytest.raises(HummingError, match=sentence) as caught:
        layer(tmp_path, tensors, quantization)
    assert caught.value.exit_code == 2 and "\n" not in str(caught.value)


def test_a_layer_without_its_scales(tmp_path: Path) -> None:
    """The KeyError 'weight_scale' of engines: here it is said what is missing."""
    tensors = {name: tensor for name, tensor in FOUR.items() if name != "weight_scale"}
    with pytest.raises(HummingError, match=r"must hold a tensor `.*\.weight_scale`, but has none"):
        layer(tmp_path, tensors, config(ASYMMETRIC))


def test_a_transform_of_the_weight_alone_is_in_the_file(tmp_path: Path) -> None:
    applied = [{"targets": ["Linear"], "location": "weight_input"}]
    transforms = {"config_groups": {"r": {"apply": applied}}}
    found = layer(tmp_path, EIGHT, config(ints(8), transform_config=transforms))
    assert found.format == "int8"
