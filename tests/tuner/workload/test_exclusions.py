"""What tools' lists of modules mean: which layers stay unquantized, and in which formats others
are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.workload import Workload, read_workload

Config = dict[str, Any]
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
INT4 = {"num_bits": 4, "type": "int", "symmetric": True, "group_size": 32, "strategy": "group"}


def ct(**more: Any) -> Config:
    group = {"targets": ["Linear"], "weights": INT4, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


def formats(workload: Workload) -> set[str]:
    return {group.format for group in workload.problems}


def counts(workload: Workload) -> dict[str, int]:
    """Layer name -> how many of them are quantized."""
    return {group.layers[0]: group.count for group in workload.problems}


def test_a_modelopt_side_file_with_globs(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    inner = {
        "quant_algo": "FP8",
        "exclude_modules": ["lm_head", "model.layers.0.mlp*", "*.1.self_attn*"],
    }
    folder = write_model(tiny_llama, hf_quant_config={"quantization": inner})
    assert counts(read_workload(folder)) == {
        "self_attn.qkv_proj": 3,
        "self_attn.o_proj": 3,
        "mlp.gate_up_proj": 3,
        "mlp.down_proj": 3,
    }


@pytest.mark.parametrize(
    ("listed", "left_out"),
    [
        (["gate"], set()),
        (["lm_head"], set()),
        (["mlp.down_proj"], {"mlp.down_proj"}),
        (["down_proj"], {"mlp.down_proj"}),
        (["down"], set()),
        (["self_attn"], {"self_attn.qkv_proj", "self_attn.o_proj"}),
        (["gate_up_proj"], {"mlp.gate_up_proj"}),
        (["gate_proj", "up_proj"], {"mlp.gate_up_proj"}),
        (["re:.*self_attn.*"], {"self_attn.qkv_proj", "self_attn.o_proj"}),
        (["model.layers.*.mlp"], {"mlp.gate_up_proj", "mlp.down_proj"}),
        (["vision_tower.encoder.layers.0.mlp.down_proj"], set()),
    ],
)
def test_modules_to_not_convert(
    write_model: Callable[..., Path], tiny_llama: Config, listed: list[str], left_out: set[str]
) -> None:
    quantization = {**GPTQ, "modules_to_not_convert": listed}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {group.layers[0] for group in workload.unquantized} == left_out
    assert workload.warnings == ()


@pytest.mark.parametrize(
    ("listed", "left_out"),
    [
        (["model.layers.1.mlp.down_proj"], {"mlp.down_proj": 1}),
        (["model.language_model.layers.1.mlp.down_proj"], {"mlp.down_proj": 1}),
        ([r"re:.*layers\.[12]\.mlp\.down_proj$"], {"mlp.down_proj": 2}),
        (["re:model.layers.3.*"], dict.fromkeys(("qkv", "o", "gate_up", "down"), 1)),
        (["down_proj", "mlp"], {}),
        (["re:down_proj"], {}),
    ],
)
def test_ignore_is_exact_or_a_regex_from_the_start(
    write_model: Callable[..., Path],
    tiny_llama: Config,
    listed: list[str],
    left_out: dict[str, int],
) -> None:
    quantization = ct(ignore=["lm_head", *listed])
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert sorted(group.count for group in workload.unquantized) == sorted(left_out.values())


def test_a_shape_is_split_between_formats_by_layer(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    listed = [f"model.layers.1.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")]
    quantization = {**GPTQ, "modules_to_not_convert": listed}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert [(g.n, g.k, g.count) for g in workload.problems] == [
        (512, 256, 4),
        (256, 256, 4),
        (1024, 256, 3),
        (256, 512, 3),
    ]
    assert [(g.n, g.k, g.count, g.format) for g in workload.unquantized] == [
        (1024, 256, 1, "fp16"),
        (256, 512, 1, "fp16"),
    ]


def test_layer_1_is_not_layer_10(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    quantization = {**GPTQ, "modules_to_not_convert": ["layers.1"]}
    config = {**tiny_llama, "num_hidden_layers": 12, "quantization_config": quantization}
    assert {g.count for g in read_workload(write_model(config)).unquantized} == {1}


def test_parts_stored_unlike_are_planned_apart(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = ct(ignore=["model.layers.0.self_attn.v_proj"])
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert [(g.n, g.k, g.count, g.format) for g in workload.unquantized] == [(128, 256, 1, "fp16")]
    assert workload.unquantized[0].layers == ("self_attn.v_proj",)
    assert counts(workload)["self_attn.qkv_proj"] == 3
    assert "self_attn.q_proj, self_attn.k_proj, self_attn.v_proj" in workload.warnings[0]


def test_config_groups_may_name_modules(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    quantization = ct()
    down = {"targets": ["re:.*down_proj$"], "weights": {**INT4, "num_bits": 8}}
    quantization["config_groups"]["group_1"] = down
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {g.layers[0]: g.format for g in workload.problems}["mlp.down_proj"] == "int8g32"
    assert formats(workload) == {"int4g32", "int8g32"}


def test_gptq_dynamic_excludes_and_overrides(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    dynamic = {r"-:.*self_attn": {}, r"+:.*\.down_proj": {"bits": 8, "group_size": 32}}
    quantization = {**GPTQ, "dynamic": dynamic}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {g.layers[0]: g.format for g in workload.problems} == {
        "mlp.gate_up_proj": "int4g128",
        "mlp.down_proj": "int8g32",
    }


def test_gptq_may_list_what_it_quantizes(
    write_model: Callable[..., Path], tiny_llama: Config
) -> None:
    listed = [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]
    quantization = {**GPTQ, "modules_in_block_to_quantize": listed}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert set(counts(workload)) == {"mlp.gate_up_proj", "mlp.down_proj"}


def test_experts_are_left_out_by_any_of_their_names(
    write_model: Callable[..., Path], tiny_moe: Config
) -> None:
    for name in ("mlp.experts", "re:.*experts.*"):
        quantization = {**GPTQ, "modules_to_not_convert": [name]}
        workload = read_workload(write_model({**tiny_moe, "quantization_config": quantization}))
        assert set(counts(workload)) == {"self_attn.qkv_proj", "self_attn.o_proj"}


def test_routers_are_never_quantized(write_model: Callable[..., Path], tiny_moe: Config) -> None:
    workload = read_workload(write_model({**tiny_moe, "quantization_config": GPTQ}), 4, "int8")
    assert [(g.layers, g.n, g.k, g.format) for g in workload.unquantized] == [
        (("mlp.gate",), 8, 256, "fp16")
    ]
