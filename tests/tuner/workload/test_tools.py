"""How AutoRound, ModelOpt, Quark, torchao, HQQ and others spell a quantization, and where it may
stand. GPTQ, AWQ, fp8 and compressed-tensors are in test_spellings.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import Workload, read_workload

Config = dict[str, Any]
AUTO = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}
MX = {"data_type": "mx_fp", "group_size": 32}
INT8 = {"dtype": "int8", "qscheme": "per_channel"}
FP8_SPEC = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
TORCHAO = {"quant_method": "torchao"}
HQQ_WEIGHTS = {"nbits": 4, "group_size": 64, "axis": 1}


def quark(weight: Any, inputs: Any = None) -> Config:
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": weight, "input_tensors": inputs},
    }


def hqq(**weights: Any) -> Config:
    parts = {"weight_quant_params": {**HQQ_WEIGHTS, **weights}}
    return {"quant_method": "hqq", "quant_config": parts, "skip_modules": ["lm_head"]}


def typed(kind: str, **data: Any) -> Config:
    return {**TORCHAO, "quant_type": {"default": {"_type": kind, "_data": data}}}


def formats(workload: Workload) -> set[str]:
    return {group.format for group in workload.problems}


@pytest.mark.parametrize(
    ("quantization", "format"),
    [
        (AUTO, "int4g128"),
        ({**AUTO, "sym": False, "quant_method": "intel/auto-round"}, "uint4g128z"),
        ({**AUTO, **MX}, "mxfp4"),
        ({**AUTO, **MX, "act_bits": 4}, "mxfp4-mxfp4"),
        ({**AUTO, "data_type": "nv_fp", "group_size": 16, "act_bits": 4}, "nvfp4-nvfp4"),
        ({**AUTO, "bits": 8, "group_size": -1, "act_bits": 8}, "int8-int8"),
        (
            {**AUTO, "bits": 8, "data_type": "fp", "group_size": -1, "act_bits": 8},
            "fp8e4m3-fp8e4m3",
        ),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 64}, "int4g64"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8e4m3-mxfp8e4m3"),
        ({"quant_method": "modelopt_fp4"}, "nvfp4-nvfp4"),
        (quark(INT8), "int8"),
        (quark(FP8_SPEC, FP8_SPEC), "fp8e4m3t-fp8e4m3t"),
        (quark([{"dtype": "uint4", "qscheme": "per_group", "group_size": 32}]), "uint4g32z"),
        (quark(INT8, {"dtype": "int8", "qscheme": "per_token", "is_dynamic": True}), "int8-int8"),
        ({**TORCHAO, "quant_type": "int4_weight_only"}, "uint4g128zf"),
        ({**TORCHAO, "quant_type": "int8_weight_only"}, "int8"),
        (typed("Int4WeightOnlyConfig", group_size=64), "uint4g64zf"),
        (
            typed("Float8DynamicActivationFloat8WeightConfig", granularity=[{"_type": "PerRow"}]),
            "fp8e4m3-fp8e4m3",
        ),
        (hqq(), "uint4g64zf"),
        (hqq(nbits=2, group_size=16), "uint2g16zf"),
        ({"quant_method": "fbgemm_fp8"}, "fp8e4m3-fp8e4m3"),
        ({"quant_method": "gptq_marlin", "bits": 4, "group_size": 128}, "int4g128"),
    ],
)
def test_spellings(
    write_model: Callable[..., Path], tiny_llama: Config, quantization: Config, format: str
) -> None:
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert formats(workload) == {format}
    assert workload.unquantized == ()


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        {"quant_method": "bitnet", "linear_class": "autobitlinear"},
        quark([FP8_SPEC, {"dtype": "int4", "qscheme": "per_channel"}]),
        quark(FP8_SPEC, {**FP8_SPEC, "is_dynamic": True}),
        hqq(axis=0),
        typed("Float8DynamicActivationFloat8WeightConfig"),
        typed("SomethingElse"),
        {**TORCHAO, "quant_type": {"default": []}},
        {**AUTO, "data_type": "ggml"},
        {"quant_method": "modelopt", "quant_algo": "W1A1"},
    ],
)
def test_what_no_format_describes_is_refused_or_overridden(
    write_model: Callable[..., Path], tiny_llama: Config, quantization: Config
) -> None:
    folder = write_model({**tiny_llama, "quantization_config": quantization})
    with pytest.raises(ModelError, match="--format"):
        read_workload(folder)
    workload = read_workload(folder, format="int4g128")
    assert formats(workload) == {"int4g128"}
    assert "planned as if unquantized, in int4g128" in workload.warnings[0]


@pytest.mark.parametrize(
    ("extra", "formats_of_down"),
    [
        ({"model.layers.1.mlp.down_proj": {"bits": 16}}, {"int4g128": 3}),
        ({"model.layers.1.mlp.down_proj": {"bits": 8}}, {"int4g128": 3, "int8g128": 1}),
        ({r".*layers\.[01]\.mlp\.down.*": {"bits": 16}}, {"int4g128": 2}),
        ({r"mlp\.down_proj$": {"bits": 16}}, {}),
        ({"lm_head": {"bits": 16}}, {"int4g128": 4}),
    ],
)
def test_auto_round_s_extra_config(
    write_model: Callable[..., Path],
    tiny_llama: Config,
    extra: Config,
    formats_of_down: dict[str, int],
) -> None:
    quantization = {**AUTO, "extra_config": extra, "block_name_to_quantize": "model.layers"}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    down = {g.format: g.count for g in workload.problems if g.layers == ("mlp.down_proj",)}
    assert down == formats_of_down


def test_auto_round_quantizes_the_named_blocks(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = {**AUTO, "block_name_to_quantize": "model.visual.blocks"}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert workload.problems == ()


@pytest.mark.parametrize(
    ("listed", "left_out"),
    [
        (["gate"], set()),
        (["mlp.gate"], set()),
        (["down_"], {"mlp.down_proj"}),
        (["self_attn"], {"self_attn.qkv_proj", "self_attn.o_proj"}),
        (["visual", "lm_head"], set()),
    ],
)
def test_awq_means_substrings_but_for_routers(
    write_model: Callable[..., Path], tiny_llama: Config, listed: list[str], left_out: set[str]
) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": listed}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": awq}))
    assert {group.layers[0] for group in workload.unquantized} == left_out


def test_a_mixed_modelopt_config(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    layers = {
        **{f"model.layers.{i}.mlp.down_proj": {"quant_algo": "FP8"} for i in range(3)},
        "model.layers.0.self_attn": {"quant_algo": "NVFP4", "group_size": 16},
    }
    inner = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    workload = read_workload(write_model(tiny_llama, hf_quant_config={"quantization": inner}))
    assert [(g.layers[0], g.format, g.count) for g in workload.problems] == [
        ("self_attn.qkv_proj", "nvfp4-nvfp4", 1),
        ("self_attn.o_proj", "nvfp4-nvfp4", 1),
        ("mlp.down_proj", "fp8e4m3t-fp8e4m3t", 3),
    ]


@pytest.mark.parametrize("place", ["top", "text", "old", "old nested", "side", "flat side"])
def test_places(write_model: Callable[..., Path], tiny_llama: Config, place: str) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    nested = {"model_type": "llava", "text_config": tiny_llama}
    folder = {
        "top": lambda: write_model({**nested, "quantization_config": gptq}),
        "text": lambda: write_model(
            {**nested, "text_config": {**tiny_llama, "quantization_config": gptq}}
        ),
        "old": lambda: write_model({**tiny_llama, "compression_config": gptq}),
        "old nested": lambda: write_model(
            {**tiny_llama, "compression_config": {"quantization_config": gptq}}
        ),
        "side": lambda: write_model(nested, quantization_config=gptq),
        "flat side": lambda: write_model(tiny_llama, hf_quant_config={"quant_algo": "FP8"}),
    }[place]()
    expected = "fp8e4m3t-fp8e4m3t" if place == "flat side" else "int4g32"
    assert formats(read_workload(folder)) == {expected}


def test_a_quantized_lm_head_is_said_to_be_left_out(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": gptq}))
    assert "lm_head is quantized too, but is not planned" in workload.warnings[0]
