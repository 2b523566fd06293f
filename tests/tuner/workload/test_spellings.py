"""How tools spell a quantization: values -> formats. What their lists of modules mean is in
test_exclusions.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import FormatError, ModelError
from tuner.workload import Workload, read_workload

Config = dict[str, Any]
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
FLOAT8 = {"num_bits": 8, "type": "float"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group"}


def ct(weights: Config, activations: Config | None = None, **more: Any) -> Config:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


def formats(workload: Workload) -> set[str]:
    return {group.format for group in workload.problems}


@pytest.mark.parametrize(
    ("start", "format"),
    [
        ("composed__Llama-3.1-8B__ct-w4a16-asym", "uint4g128z"),
        ("composed__Llama-3.1-8B__ct-w8a16", "int8g128"),
        ("composed__Llama-3.1-8B__ct-w8a8-int8", "int8-int8"),
        ("composed__Llama-3.1-8B__ct-fp8-static", "fp8e4m3t-fp8e4m3t"),
        ("composed__Llama-3.1-8B__ct-nvfp4", "nvfp4-nvfp4"),
        ("composed__Llama-3.1-8B__ct-mxfp4a16", "mxfp4"),
        ("ibm-granite__granite-3.3", "fp8e4m3-fp8e4m3"),
        ("TheBloke__Wizard-Vicuna-30B-Uncensored-GPTQ__gptq-w4-g-1", "int4"),
        ("TheBloke__Mixtral", "uint4g128z"),
        ("TheBloke__Genz-70b-GPTQ__gptq-w4", "int4g128"),
        ("nvidia__Llama-3.1-70B", "fp8e4m3t-fp8e4m3t"),
    ],
)
def test_public_quantizations(
    public_config: Callable[[str], Path], start: str, format: str
) -> None:
    assert formats(read_workload(public_config(start))) == {format}


@pytest.mark.parametrize(
    ("quantization", "format"),
    [
        (GPTQ, "int4g128"),
        ({**GPTQ, "sym": False}, "uint4g128z"),
        ({**GPTQ, "group_size": -1}, "int4"),
        ({**GPTQ, "bits": 3, "group_size": 64}, "int3g64"),
        ({key: value for key, value in GPTQ.items() if key != "quant_method"}, "int4g128"),
        (AWQ, "uint4g64z"),
        ({**AWQ, "zero_point": False}, "int4g64"),
        ({"w_bit": 4, "q_group_size": 128, "zero_point": True}, "uint4g128z"),
        (FP8, "fp8e4m3b128-fp8e4m3g128"),
        ({**FP8, "fmt": "float8_e4m3fn"}, "fp8e4m3b128-fp8e4m3g128"),
        ({**FP8, "weight_block_size": None}, "fp8e4m3t-fp8e4m3"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8e4m3t-fp8e4m3t"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4-nvfp4"),
        (ct(INT4), "int4g32"),
        (ct({**INT4, "strategy": None}), "int4g32"),
        (ct({**INT4, "symmetric": False}), "uint4g32z"),
        (ct({**INT4, "strategy": "channel", "group_size": None}), "int4"),
        (ct({**INT4, "num_bits": 8, "strategy": "channel", "group_size": -1}), "int8"),
        (
            ct(
                {
                    "num_bits": 8,
                    "type": "float",
                    "strategy": "block",
                    "block_structure": [128, 128],
                },
                {
                    "num_bits": 8,
                    "type": "float",
                    "strategy": "group",
                    "group_size": 128,
                    "dynamic": True,
                },
            ),
            "fp8e4m3b128-fp8e4m3g128",
        ),
        (
            ct(
                {**FLOAT8, "strategy": "tensor"},
                {**FLOAT8, "strategy": "token", "dynamic": True},
            ),
            "fp8e4m3t-fp8e4m3",
        ),
    ],
)
def test_spellings(
    write_model: Callable[..., Path], tiny_llama: Config, quantization: Config, format: str
) -> None:
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert formats(workload) == {format}
    assert workload.unquantized == ()


def test_the_old_key_is_read(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    assert formats(read_workload(write_model({**tiny_llama, "compression_config": ct(INT4)}))) == {
        "int4g32"
    }


@pytest.mark.parametrize("nothing", [None, {}])
def test_an_empty_quantization_is_none(
    write_model: Callable[..., Path], tiny_llama: Config, nothing: object
) -> None:
    workload = read_workload(write_model({**tiny_llama, "quantization_config": nothing}))
    assert workload.problems == ()
    assert {group.format for group in workload.unquantized} == {"fp16"}


def test_side_files_stand_in_for_the_key(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    side = {"bits": 4, "group_size": 64, "sym": True, "desc_act": False}
    assert formats(read_workload(write_model(tiny_llama, quantize_config=side))) == {"int4g64"}
    config = {**tiny_llama, "quantization_config": GPTQ}
    assert formats(read_workload(write_model(config, quantize_config=side))) == {"int4g128"}


def test_only_a_quantized_kv_cache_is_no_quantization(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    inner = {"quant_algo": None, "kv_cache_quant_algo": "FP8"}
    folder = write_model(tiny_llama, hf_quant_config={"quantization": inner})
    assert read_workload(folder).problems == ()


def test_act_order_is_marked_and_named(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = {**GPTQ, "desc_act": True}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert all(group.act_order for group in workload.problems)
    assert len(workload.warnings) == 4
    channel = {**quantization, "group_size": -1}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": channel}))
    assert not any(group.act_order for group in workload.problems)


def test_a_format_takes_what_the_checkpoint_leaves(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = {**GPTQ, "modules_to_not_convert": ["self_attn"]}
    folder = write_model({**tiny_llama, "quantization_config": quantization})
    workload = read_workload(folder, format="int8")
    assert [(g.layers[0], g.format) for g in workload.problems] == [
        ("self_attn.qkv_proj", "int8"),
        ("self_attn.o_proj", "int8"),
        ("mlp.gate_up_proj", "int4g128"),
        ("mlp.down_proj", "int4g128"),
    ]


def test_a_method_that_is_not_read_is_refused_or_overridden(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}
    path = write_model({**tiny_llama, "quantization_config": quantization})
    with pytest.raises(ModelError, match=r'quant_method` must be one of .* but got "bitsandbytes"'):
        read_workload(path)
    workload = read_workload(path, format="int4g128")
    assert formats(workload) == {"int4g128"}
    assert '"bitsandbytes"' in workload.warnings[0]


def test_an_unknown_format_is_refused(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    with pytest.raises(FormatError, match="int4q"):
        read_workload(write_model(tiny_llama), format="int4q")
