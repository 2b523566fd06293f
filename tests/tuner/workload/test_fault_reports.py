"""Kinds of faults that users of other tools reported: shapes or quantizations taken wrongly from a
config. One test a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import LayerGroup, Workload, read_workload

Config = dict[str, Any]
Write = Callable[..., Path]
BASE = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "head_dim": 64}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
MLA = {"q_lora_rank": 256, "kv_lora_rank": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}


def moe(workload: Workload) -> list[LayerGroup]:
    return [g for g in (*workload.problems, *workload.unquantized) if g.op == "moe"]


def rows(groups: tuple[LayerGroup, ...]) -> list[tuple[str, int, int, int]]:
    return [(g.layers[0], g.n, g.k, g.count) for g in groups]


@pytest.mark.parametrize(
    ("config", "experts", "top_k", "width"),
    [
        # Experts under other keys than Mixtral's, nested or not (reports 1 to 4, 6).
        (
            {
                "model_type": "gemma4",
                "text_config": {
                    **BASE,
                    "model_type": "gemma4_text",
                    "enable_moe_block": True,
                    "intermediate_size": 2048,
                    "num_experts": 128,
                    "top_k_experts": 8,
                    "moe_intermediate_size": 704,
                },
            },
            128,
            8,
            704,
        ),
        (
            {
                **BASE,
                "model_type": "deepseek_v4",
                "n_routed_experts": 256,
                "num_experts_per_tok": 6,
                "moe_intermediate_size": 2048,
                "q_lora_rank": 256,
                "o_lora_rank": 256,
                "o_groups": 4,
            },
            256,
            6,
            2048,
        ),
        (
            {
                **BASE,
                "architectures": ["Qwen4ExpForCausalLM"],
                "num_experts": 512,
                "num_experts_per_tok": 10,
                "moe_intermediate_size": 640,
                "shared_expert_intermediate_size": 640,
                "linear_num_key_heads": 8,
                "linear_num_value_heads": 16,
                "linear_key_head_dim": 64,
                "linear_value_head_dim": 64,
            },
            512,
            10,
            640,
        ),
        (
            {
                **BASE,
                "architectures": ["Qwen3_5MoeForCausalLM"],
                "num_experts": 64,
                "num_experts_per_tok": 8,
                "moe_intermediate_size": 512,
                "shared_expert_intermediate_size": 512,
                "linear_num_key_heads": 8,
                "linear_num_value_heads": 16,
                "linear_key_head_dim": 64,
                "linear_value_head_dim": 64,
            },
            64,
            8,
            512,
        ),
        # The shared expert stays apart: 64 experts of which 4, not 65 and 5 (reports 5, 7).
        (
            {
                **BASE,
                **MLA,
                "model_type": "glm4_moe_lite",
                "v_head_dim": 64,
                "n_routed_experts": 64,
                "n_shared_experts": 1,
                "num_experts_per_tok": 4,
                "moe_intermediate_size": 512,
            },
            64,
            4,
            512,
        ),
        (
            {
                "model_type": "llama4",
                "text_config": {
                    **BASE,
                    "model_type": "llama4_text",
                    "num_local_experts": 16,
                    "num_experts_per_tok": 1,
                    "intermediate_size": 8192,
                    "intermediate_size_mlp": 16384,
                },
            },
            16,
            1,
            8192,
        ),
    ],
)
def test_experts_are_found_under_any_model_s_keys(
    write_model: Write, config: Config, experts: int, top_k: int, width: int
) -> None:
    groups = moe(read_workload(write_model(config)))
    assert [(g.experts, g.top_k) for g in groups] == [(experts, top_k)] * 2
    assert [(g.n, g.k) for g in groups] == [(2 * width, 1024), (1024, width)]


@pytest.mark.parametrize(
    ("width", "tp", "parts"),
    [(768, 4, "1.5"), (1536, 8, "1.5"), (640, 8, "0.625"), (768, 8, "0.75"), (2048, 32, "0.5")],
)
def test_blocks_that_a_rank_does_not_fill_are_planned_and_named(
    write_model: Write, tiny_moe: Config, width: int, tp: int, parts: str
) -> None:
    heads = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 2048}
    config = {**tiny_moe, **heads, "moe_intermediate_size": width, "quantization_config": FP8}
    workload = read_workload(write_model(config), tp)
    assert [(g.n, g.k) for g in moe(workload)] == [(2 * width // tp, 2048), (2048, width // tp)]
    said = [warning for warning in workload.warnings if "experts" in warning]
    assert [f"is {parts} blocks of 128" in warning for warning in said] == [True, True]


def test_unquantized_experts_fit_any_width(write_model: Write, tiny_moe: Config) -> None:
    workload = read_workload(write_model({**tiny_moe, "moe_intermediate_size": 96}))
    assert workload.warnings == ()


@pytest.mark.parametrize(
    ("width", "tp", "said"),
    [(29568, 4, "k=7392 is 57.75 groups of 128"), (27392, 4, "k=6848 is 53.5 groups of 128")],
)
def test_groups_that_straddle_ranks_are_named(
    write_model: Write, tiny_llama: Config, width: int, tp: int, said: str
) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    config = {**tiny_llama, "intermediate_size": width, "quantization_config": awq}
    assert any(said in warning for warning in read_workload(write_model(config), tp).warnings)


def test_a_dense_width_of_half_a_block(write_model: Write, tiny_llama: Config) -> None:
    heads = {"num_attention_heads": 16, "num_key_value_heads": 16, "hidden_size": 2048}
    config = {**tiny_llama, **heads, "intermediate_size": 33792, "quantization_config": FP8}
    warnings = read_workload(write_model(config), 16).warnings
    assert any("a part of n=2112 is 16.5 blocks of 128" in warning for warning in warnings)


def test_channel_scales_of_experts(public_config: Callable[[str], Path]) -> None:
    workload = read_workload(public_config("meta-llama__Llama-4-Maverick"))
    assert {g.format for g in moe(workload)} == {"fp8e4m3-fp8e4m3"}


def test_a_layer_without_v_follows_k(write_model: Write) -> None:
    """gemma-4's full attention has no v_proj; a list that names q and k means v as well."""
    text = {
        **BASE,
        "model_type": "gemma4_text",
        "intermediate_size": 2048,
        "num_key_value_heads": 4,
        "global_head_dim": 128,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    }
    ignore = [f"re:.*layers.3.self_attn.{part}_proj" for part in "qk"]
    group = {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
    }
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ignore,
    }
    config = {"model_type": "gemma4", "text_config": text, "quantization_config": quantization}
    workload = read_workload(write_model(config))
    assert rows(workload.unquantized) == [("self_attn.qkv_proj", 16 * 128 + 2 * 2 * 128, 1024, 1)]
    assert workload.warnings == ()


@pytest.mark.parametrize(
    "prefix",
    ["model.layers", "model.language_model.layers", "language_model.model.layers", "layers"],
)
def test_lists_name_layers_as_checkpoints_or_engines_do(write_model: Write, prefix: str) -> None:
    text = {**BASE, "model_type": "qwen3", "intermediate_size": 2048}
    left_out = [f"{prefix}.1.mlp.{name}_proj" for name in ("gate", "up", "down")]
    config = {
        "model_type": "qwen3_vl",
        "text_config": text,
        "quantization_config": {**FP8, "modules_to_not_convert": left_out},
    }
    workload = read_workload(write_model(config))
    assert [(g.layers[0], g.count) for g in workload.unquantized] == [
        ("mlp.gate_up_proj", 1),
        ("mlp.down_proj", 1),
    ]


@pytest.mark.parametrize("name", ["mlp.experts", "re:.*mlp.experts.*", "*.experts.*"])
def test_lists_reach_fused_experts(write_model: Write, tiny_moe: Config, name: str) -> None:
    config = {**tiny_moe, "quantization_config": {**FP8, "modules_to_not_convert": [name]}}
    assert all(g.op == "dense" for g in read_workload(write_model(config)).problems)


def test_a_target_may_name_experts_as_another_library_does(write_model: Write) -> None:
    """DeepSeek's own files say ffn.experts.0.w1 and converted ones mlp.experts.0.gate_proj."""
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    group = {"targets": [r"re:.*\.experts\.\d+\.(gate|up|down)_proj$"], "weights": weights}
    config = {
        **BASE,
        "model_type": "deepseek_v4",
        "n_routed_experts": 16,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 512,
        "q_lora_rank": 256,
        "o_lora_rank": 256,
        "o_groups": 4,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": group},
        },
    }
    assert {g.op for g in read_workload(write_model(config)).problems} == {"moe"}


def test_all_config_groups_count(write_model: Write, tiny_llama: Config) -> None:
    attention = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}}
    mlp = {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
    }
    groups = {"group_0": mlp, "group_1": attention}
    quantization = {"quant_method": "compressed-tensors", "config_groups": groups}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert [g.format for g in workload.problems] == ["fp8e4m3t", "fp8e4m3t", "nvfp4", "nvfp4"]


def test_a_quantization_that_means_no_layer_is_named(
    write_model: Write, tiny_llama: Config
) -> None:
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    group = {"targets": ["re:.*nowhere.*"], "weights": weights}
    quantization = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert "means none of this model's layers" in workload.warnings[0]


def test_quark_s_layer_entries_count(write_model: Write, tiny_llama: Config) -> None:
    fp4 = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": False}
    fp8 = {"dtype": "fp8_e4m3", "qscheme": "per_block", "block_size": [128, 128]}
    layers = {
        f"model.layers.{i}.self_attn.{n}_proj": {"weight": fp8} for i in range(4) for n in "qkvo"
    }
    quantization = {
        "quant_method": "quark",
        "global_quant_config": {"weight": fp4, "input_tensors": {**fp4, "is_dynamic": True}},
        "layer_quant_config": layers,
        "exclude": ["lm_head", "*.3.mlp.down_proj"],
    }
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert [(g.format, g.count) for g in workload.problems] == [
        ("fp8e4m3b128", 4),
        ("fp8e4m3b128", 4),
        ("mxfp4-mxfp4", 4),
        ("mxfp4-mxfp4", 3),
    ]


def test_fp8_per_channel(write_model: Write, tiny_llama: Config) -> None:
    quantization = {"quant_method": "fp8", "quant_scheme": "channel", "activation_scheme": "static"}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {g.format for g in workload.problems} == {"fp8e4m3-fp8e4m3t"}


@pytest.mark.parametrize("heads", [14, 28, 52, 4, 20])
def test_heads_that_do_not_divide(write_model: Write, tiny_llama: Config, heads: int) -> None:
    config = {**tiny_llama, "num_attention_heads": heads, "num_key_value_heads": 2, "head_dim": 64}
    with pytest.raises(ModelError, match="`num_attention_heads % tp == 0` must hold"):
        read_workload(write_model(config), 8)


@pytest.mark.parametrize(
    ("start", "tp", "row", "said"),
    [
        ("poolside__Laguna", 8, ("mlp.shared_expert.gate_proj", 64, 2048, 78), "0.5 blocks of 128"),
        ("openai__gpt-oss-20b", 8, ("mlp.experts.w2", 2880, 360, 24), "11.25 groups of 32"),
    ],
)
def test_what_engines_pad_or_refuse_is_planned(
    public_config: Callable[[str], Path], start: str, tp: int, row: tuple[Any, ...], said: str
) -> None:
    workload = read_workload(public_config(start), tp)
    assert row in rows(workload.problems)
    assert any(said in warning for warning in workload.warnings)


def test_a_group_that_is_cut_short_is_named(public_config: Callable[[str], Path]) -> None:
    warnings = read_workload(public_config("nvidia__NVIDIA-Nemotron-3-Nano"), 8, "nvfp4").warnings
    assert any("k=232 is 14.5 groups of 16" in warning for warning in warnings)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("desc_act", [False, True])
def test_gptq_of_any_width_and_order(
    write_model: Write, tiny_llama: Config, bits: int, desc_act: bool
) -> None:
    quantization = {"quant_method": "gptq", "bits": bits, "group_size": 32, "desc_act": desc_act}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {(g.format, g.act_order) for g in workload.problems} == {(f"int{bits}g32", desc_act)}


def test_a_side_file_needs_no_producer(write_model: Write, tiny_llama: Config) -> None:
    side = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    workload = read_workload(write_model(tiny_llama, hf_quant_config=side))
    assert {g.format for g in workload.problems} == {"fp8e4m3t-fp8e4m3t"}


def test_512_experts_with_gptq_exclusions(write_model: Write, tiny_moe: Config) -> None:
    dynamic = {"-:.*attn.*": {}, "-:.*shared_expert.*": {}, "-:.*mtp.*": {}, "-:.*visual.*": {}}
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    experts = {"num_experts": 512, "moe_intermediate_size": 1024, "num_experts_per_tok": 10}
    workload = read_workload(
        write_model({**tiny_moe, **experts, "quantization_config": quantization})
    )
    assert [(g.op, g.n, g.k, g.experts) for g in workload.problems] == [
        ("moe", 2048, 256, 512),
        ("moe", 256, 1024, 512),
    ]


@pytest.mark.parametrize("layers", [None, {}, "absent"])
def test_quark_without_layer_entries(write_model: Write, tiny_llama: Config, layers: Any) -> None:
    weight = {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0"}
    quantization: Config = {"quant_method": "quark", "global_quant_config": {"weight": weight}}
    if layers != "absent":
        quantization["layer_quant_config"] = layers
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {g.format for g in workload.problems} == {"mxfp4"}


def test_fbgemm_is_per_channel(write_model: Write, tiny_llama: Config) -> None:
    quantization = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
    workload = read_workload(write_model({**tiny_llama, "quantization_config": quantization}))
    assert {g.format for g in workload.problems} == {"fp8e4m3-fp8e4m3"}


def test_blocks_that_a_rank_fills_are_not_named(write_model: Write, tiny_moe: Config) -> None:
    heads = {"num_attention_heads": 32, "num_key_value_heads": 32, "hidden_size": 2048}
    config = {**tiny_moe, **heads, "moe_intermediate_size": 2048, "quantization_config": FP8}
    workload = read_workload(write_model(config), 8)
    assert [(g.n, g.k) for g in moe(workload)] == [(512, 2048), (2048, 256)]
    assert workload.warnings == ()
