"""ModelOpt and Quark: what their tensors and configs tell, and what is refused. The tools' own
files are in test_public_files.py and test_oracle_tools.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, random_codes, random_scales, under, write_checkpoint
from tests.checkpoints.test_fp8 import fp8, scales

N, K = 24, 640
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def open_(folder: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Any:
    return humming.checkpoints.open(write_checkpoint(folder, tensors, config))


def modelopt(folder: Path, tensors: dict[str, torch.Tensor], **config: Any) -> Any:
    return open_(folder, under(LAYER, tensors), quant_method="modelopt", **config).layer(LAYER)


def pairs(codes: torch.Tensor) -> torch.Tensor:
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


@pytest.mark.parametrize("shape", [(), (1,), (N,), (N, 1), (2, 5), (2, 1, 5, 1), (1, 5)])
def test_fp8_scales_of_every_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    n = 200 if shape[:1] == (2,) else N
    weight, scale = fp8(n, K), scales(*shape)
    found = modelopt(tmp_path, {"weight": weight, "weight_scale": scale}, quant_algo="FP8_PB_WO")
    if (len(shape) >= 2 and shape[-1] != 1) or len(shape) == 4:
        blocks = scale.double().reshape(-1, 5)
        wide = blocks.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :K]
        assert found.format == "fp8e4m3b128"
    else:
        wide = scale.double().reshape(-1, 1)
        assert found.format == ("fp8e4m3" if scale.numel() == N else "fp8e4m3t")
    assert torch.equal(found.dequantized(), weight.double() * wide)


def test_nvfp4_of_640_columns(tmp_path: Path) -> None:
    """A size that engines refuse as it is no multiple of 256."""
    codes, fine = random_codes(N, K, 4), (scales(N, K // 16) * 100).to(torch.float8_e4m3fn)
    tensors = {"weight": pairs(codes), "weight_scale": fine}
    tensors |= {"weight_scale_2": torch.tensor(0.0117), "input_scale": torch.tensor(0.25)}
    found = modelopt(tmp_path, tensors, quant_algo="NVFP4")
    wide = fine.double().repeat_interleave(16, 1) * tensors["weight_scale_2"].double()
    assert torch.equal(found.dequantized(), torch.cat([E2M1, -E2M1])[codes] * wide)
    assert found.format == "nvfp4-nvfp4" and float(found.activation_scale) == 0.25


@pytest.mark.parametrize("name", ["weight_scale", "weight_scale_inv"])
def test_mxfp8_under_either_name(tmp_path: Path, name: str) -> None:
    """Converters die of KeyError 'weight_scale' where the file calls it weight_scale_inv."""
    weight, exponents = fp8(N, K), random_codes(N, K // 32, 5).to(torch.uint8) + 110
    found = modelopt(tmp_path, {"weight": weight, name: exponents}, quant_algo="MXFP8")
    wide = torch.exp2(exponents.double() - 127).repeat_interleave(32, 1)
    assert found.format == "mxfp8e4m3-mxfp8e4m3"
    assert torch.equal(found.dequantized(), weight.double() * wide)


def int4_tensors() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    codes, scale = random_codes(N, K, 4) - 8, random_scales(N, K // 128)
    packed = ((codes[0::2] & 15) | (codes[1::2] & 15) << 4).to(torch.uint8)
    weight = codes.double() * scale.double().repeat_interleave(128, 1)
    return {"weight": packed, "weight_scale": scale}, weight


def test_int4_rows_in_pairs(tmp_path: Path) -> None:
    tensors, weight = int4_tensors()
    found = modelopt(tmp_path, tensors, quant_algo="W4A16_AWQ", group_size=128)
    assert found.format == "int4g128" and torch.equal(found.dequantized(), weight)


@pytest.mark.parametrize("ones", [True, False])
def test_a_factor_of_x_is_multiplied_into_the_weight(tmp_path: Path, ones: bool) -> None:
    tensors, weight = int4_tensors()
    factors = torch.ones(K) if ones else scales(K)
    tensors["pre_quant_scale"] = factors
    found = modelopt(tmp_path, tensors, quant_algo="W4A16_AWQ")
    assert found.quantized is ones and ("pre_quant_scale" in found.note) is not ones
    assert torch.equal(found.dequantized(torch.float32), (weight * factors.double()).float())


@pytest.mark.parametrize("model", ["llama4_text", "gpt_oss"])
@pytest.mark.parametrize("kind", ["fp8", "nvfp4", "mxfp4"])
def test_stacked_experts(tmp_path: Path, kind: str, model: str) -> None:
    """[experts, k, n]: gate above up, but in turns in gpt-oss."""
    experts, h, i = 3, 64, 32
    tensors, expected = {}, {}
    for stack, n, k in (("gate_up_proj", 2 * i, h), ("down_proj", h, i)):
        name = f"{LAYER}.experts.{stack}"
        if kind == "fp8":
            whole, scale = fp8(experts * n, k).view(experts, n, k), scales(experts)
            weight = whole.double() * scale.double()[:, None, None]
            tensors[name] = whole.transpose(1, 2)
            tensors[f"{name}_weight_scale"] = scale
        else:
            size = 16 if kind == "nvfp4" else 32
            codes = random_codes(experts * n, k, 4)
            fine = (scales(experts * n, k // size) * 100).to(torch.float8_e4m3fn)
            if kind == "mxfp4":
                fine = random_codes(experts * n, k // size, 5).to(torch.uint8) + 110
            second = torch.tensor(0.25)
            wide = fine.double() * 0.25 if kind == "nvfp4" else torch.exp2(fine.double() - 127)
            weight = torch.cat([E2M1, -E2M1])[codes] * wide.repeat_interleave(size, 1)
            weight = weight.view(experts, n, k)
            tensors[name] = pairs(codes).view(experts, n, -1).transpose(1, 2)
            tensors[f"{name}_weight_scale"] = fine.view(experts, n, -1).transpose(1, 2)
            tensors |= {f"{name}_weight_scale_2": second} if kind == "nvfp4" else {}
        bias = scales(experts, n)
        tensors |= {f"{name}_bias": bias, f"{name}_input_scale": torch.tensor(0.5)}
        in_turns = model == "gpt_oss"
        for at, part in enumerate(("gate_proj", "up_proj") if stack[0] == "g" else ("down_proj",)):
            half = slice(at, None, 2) if in_turns else slice(at * i, at * i + i)
            rows = half if stack[0] == "g" else slice(None)
            expected[part] = weight[:, rows], bias[:, rows]
    config = {"quant_method": "modelopt", "quant_algo": {"fp8": "FP8"}.get(kind, kind.upper())}
    folder = write_checkpoint(tmp_path, tensors, config, model_type=model)
    checkpoint = humming.checkpoints.open(folder)
    assert len(checkpoint.quantized_names) == 3 * experts
    for part, (weight, bias) in expected.items():
        for expert, found in enumerate(checkpoint.experts(f"{LAYER}.experts", part)):
            assert torch.equal(found.dequantized(), weight[expert])
            assert torch.equal(found.bias, bias[expert])
            told = humming.checkpoints.open(folder, headers_only=True).layer(found.name)
            assert (told.format, told.shape) == (found.format, found.shape)
    tensors[f"{LAYER}.experts.down_proj_bias"][1, 0] = torch.nan
    spoilt = humming.checkpoints.open(write_checkpoint(folder, tensors, config, model_type=model))
    with pytest.raises(HummingError, match=r"down_proj_bias` must be finite"):
        spoilt.layer(f"{LAYER}.experts.1.down_proj")


def test_mixed_precision(tmp_path: Path) -> None:
    weight = {"weight": fp8(N, K), "weight_scale": scales(), "input_scale": torch.tensor(2.0)}
    other = {"weight": fp8(N, K), "weight_scale": scales(N)}
    tensors = {**under("m.0.up_proj", weight), **under("m.0.down_proj", other)}
    tensors["lm_head.weight"] = torch.ones(N, K).half()
    layers = {
        "m.0.up_proj": {"quant_algo": "FP8"},
        "m.*.down_proj": {"quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"},
    }
    config = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    checkpoint = open_(tmp_path, tensors, quant_method="modelopt", **config)
    assert checkpoint.layer("m.0.up_proj").format == "fp8e4m3t-fp8e4m3t"
    assert checkpoint.layer("m.0.down_proj").format == "fp8e4m3-fp8e4m3"
    assert checkpoint.layer("lm_head").format == "fp16"


def test_nvfp4_experts_beside_fp8(tmp_path: Path) -> None:
    """A config of the method "fp8" whose `quantized_layers` names the experts' own format."""
    codes, fine = random_codes(N, K, 4), (scales(N, K // 16) * 100).to(torch.float8_e4m3fn)
    expert = {"weight": pairs(codes), "weight_scale": fine, "weight_scale_2": torch.tensor(0.5)}
    block = {"weight": fp8(N, K), "weight_scale_inv": scales(1, 5)}
    tensors = {**under("layers.0.ffn.experts.0.w1", expert), **under("layers.0.attn.wq", block)}
    layers = {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}}
    more = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    config = {"quant_method": "fp8", "weight_block_size": [128, 128], **more}
    checkpoint = open_(tmp_path, tensors, **config)
    found = checkpoint.layer("layers.0.ffn.experts.0.w1")
    wide = fine.double().repeat_interleave(16, 1) * 0.5
    assert found.format == "nvfp4-nvfp4"
    assert torch.equal(found.dequantized(), torch.cat([E2M1, -E2M1])[codes] * wide)
    assert checkpoint.layer("layers.0.attn.wq").format == "fp8e4m3b128-fp8e4m3g128"


def test_parts_of_different_scales_stay_exact_when_fused(tmp_path: Path) -> None:
    """Engines take the largest scale of all parts, and round codes anew."""
    parts = {name: {"weight": fp8(n, K), "weight_scale": torch.tensor(s)}
             for name, n, s in (("q", 16, 0.01), ("k", 8, 0.3), ("v", 8, 0.07))}  # fmt: skip
    tensors = {key: t for name, part in parts.items() for key, t in under(name, part).items()}
    checkpoint = open_(tmp_path, tensors, quant_method="modelopt", quant_algo="FP8")
    found = checkpoint.layer(["q", "k", "v"])
    expected = [part["weight"].double() * part["weight_scale"].double() for part in parts.values()]
    assert found.weight.format == "fp8e4m3"
    assert torch.equal(found.dequantized(), torch.cat(expected))


NVFP4 = {"weight": torch.ones(N, K // 2, dtype=torch.uint8),
         "weight_scale": fp8(N, K // 16)}  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        (NVFP4, "`.*weight_scale_2`, but has none"),
        ({**NVFP4, "weight_scale_2": torch.zeros(1)}, "must be above 0, but got 0"),
        ({**NVFP4, "weight_scale_2": torch.ones(2)}, "must be one number"),
        ({"weight": fp8(N, K), "weight_scale": scales(3)}, "one a block of 128"),
        ({"weight": fp8(N, K), "weight_scale": torch.full((N, 20), 255).to(torch.uint8)}, "255"),
        ({"weight": fp8(N, K).view(torch.int16), "weight_scale": scales()}, "but is int16"),
        ({"weight": fp8(N, K)}, "must hold a tensor .*weight_scale`, but has none"),
    ],
)
def test_what_modelopt_files_lack(tmp_path: Path, tensors: Any, sentence: str) -> None:
    with pytest.raises(HummingError, match=sentence) as caught:
        modelopt(tmp_path, tensors, quant_algo="FP8")
    assert "\n" not in str(caught.value)


def quark(folder: Path, tensors: dict[str, torch.Tensor], weight: Any, **config: Any) -> Any:
    layers = {"global_quant_config": {"weight": weight}, **config}
    return open_(folder, under(LAYER, tensors), quant_method="quark", **layers).layer(LAYER)


INT8 = {"dtype": "int8", "qscheme": "per_channel", "ch_axis": 0, "symmetric": True}
BYTES = {"weight": torch.ones(N, K, dtype=torch.int8), "weight_scale": scales(N)}


def test_quark_by_name(tmp_path: Path) -> None:
    whole = {"weight": fp8(N, K), "weight_scale": scales(), "input_scale": torch.tensor(0.5)}
    specs = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
    named = {"*.mlp.*": {"weight": specs, "input_tensors": specs}}
    tensors = {**under("a.mlp.up", whole), **under("a.attn.q", BYTES)}
    config = {"global_quant_config": {"weight": INT8}, "layer_quant_config": named}
    checkpoint = open_(tmp_path, tensors, quant_method="quark", **config)
    assert checkpoint.layer("a.mlp.up").format == "fp8e4m3t-fp8e4m3t"
    assert checkpoint.layer("a.attn.q").format == "int8"


@pytest.mark.parametrize("rows", [24, 21])
@pytest.mark.parametrize("method", ["reorder", "order"])
def test_quark_uint4_groups(tmp_path: Path, method: str, rows: int) -> None:
    codes, zeros = random_codes(rows, 64, 4), random_codes(rows, 2, 4, 3)
    scale = random_scales(rows, 2)
    order = [0, 2, 4, 6, 1, 3, 5, 7] if method == "reorder" else list(range(8))

    def words(columns: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(columns, (0, -columns.shape[1] % 8))
        eights = padded.view(columns.shape[0], -1, 8)[:, :, order]
        packed = (eights << (torch.arange(8) * 4)).sum(2)
        return (packed - ((packed >> 31) << 32)).to(torch.int32)

    tensors = {"weight": words(codes.t()), "weight_zero_point": words(zeros.t()),
               "weight_scale": scale.t()}  # fmt: skip
    spec = {"dtype": "uint4", "qscheme": "per_group", "ch_axis": -1, "group_size": 32}
    found = quark(tmp_path, tensors, spec, export={"pack_method": method})
    wide = torch.arange(64) // 32
    weight = (codes - zeros[:, wide]).double() * scale.double()[:, wide]
    assert found.format == "uint4g32z" and torch.equal(found.dequantized(), weight)


def test_quark_float_zero_points(tmp_path: Path) -> None:
    zeros = scales(N)
    tensors = {**BYTES, "weight_zero_point": zeros}
    found = quark(tmp_path, tensors, {**INT8, "zero_point_type": "float32"})
    weight = (1 + 128 - (zeros + 128).double()[:, None]) * BYTES["weight_scale"].double()[:, None]
    assert found.format == "uint8zf"
    assert torch.equal(found.dequantized(), weight.expand(N, K))


@pytest.mark.parametrize(
    ("tensors", "weight", "sentence"),
    [
        (BYTES, {**INT8, "qscheme": "per_channel", "ch_axis": 1}, "per_channel .axis 0."),
        (BYTES, {**INT8, "dtype": "bfp16"}, "one of int2"),
        (BYTES, [INT8, INT8], "one stage"),
        (BYTES, None, "an object"),
        ({**BYTES, "input_rotation": scales(4, 4)}, INT8, "a rotation"),
        ({**BYTES, "weight_scale": scales(N + 1)}, INT8, "must be .24, 1."),
    ],
)
def test_what_quark_files_lack(tmp_path: Path, tensors: Any, weight: Any, sentence: str) -> None:
    with pytest.raises(HummingError, match=sentence) as caught:
        quark(tmp_path, tensors, weight)
    assert "\n" not in str(caught.value)
