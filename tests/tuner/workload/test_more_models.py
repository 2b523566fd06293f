"""Kinds of models beside the public configs: what stands in their layers, from small configs
counted by hand. Keys, switches and lists per layer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import read_workload
from tuner.workload.architectures import ARCHITECTURES
from tuner.workload.recognize import KNOWN

Config = dict[str, Any]
Write = Callable[..., Path]
BASE = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 512,
}
NO_HEAD_DIM = {key: value for key, value in BASE.items() if key != "head_dim"}
MAMBA = {"mamba_num_heads": 8, "mamba_head_dim": 32, "n_groups": 2, "ssm_state_size": 16}
MOE = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
KIMI = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32}
QKV, OUT, GATE_UP, DOWN = (384, 256, 4), (256, 256, 4), (1024, 256, 4), (256, 512, 4)

MODELS: dict[str, tuple[Config, set[tuple[int, int, int]]]] = {
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 8},
        {(768, 256, 4), (256, 256, 4), (1024, 256, 4), (256, 1024, 4)},
    ),
    "falcon, one key-value head": (
        {
            "model_type": "falcon",
            "hidden_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 8,
        },
        {(320, 256, 4), (256, 256, 4), (1024, 256, 4), (256, 1024, 4)},
    ),
    "falcon, grouped": (
        {
            **NO_HEAD_DIM,
            "model_type": "falcon",
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
        },
        {QKV, OUT, (512, 256, 4), DOWN},
    ),
    "starcoder2": ({**BASE, "model_type": "starcoder2"}, {QKV, OUT, (512, 256, 4), DOWN}),
    "internlm2": ({**BASE, "model_type": "internlm2"}, {QKV, OUT, GATE_UP, DOWN}),
    "widths listed layer by layer": (
        {**BASE, "model_type": "llama", "intermediate_size": [512, 512, 768, 768]},
        {QKV, OUT, (1024, 256, 2), (256, 512, 2), (1536, 256, 2), (256, 768, 2)},
    ),
    "key-value heads listed layer by layer": (
        {
            **{k: v for k, v in BASE.items() if k != "num_key_value_heads"},
            "architectures": ["DeciLMForCausalLM"],
            "num_key_value_heads_per_layer": [2, 2, 4, 8],
        },
        {(384, 256, 2), (512, 256, 1), (768, 256, 1), OUT, GATE_UP, DOWN},
    ),
    "nemotron-h with latent experts": (
        {
            **BASE,
            **MAMBA,
            **MOE,
            "model_type": "nemotron_h",
            "hybrid_override_pattern": "M*-E",
            "n_shared_experts": 1,
            "moe_shared_expert_intermediate_size": 128,
            "moe_latent_size": 96,
        },
        {
            (2 * 256 + 2 * 32 + 8, 256, 1),
            (256, 256, 2),
            (384, 256, 1),
            (512, 256, 1),
            (256, 512, 1),
            (8, 256, 1),
            (128, 256, 1),
            (256, 128, 1),
            (96, 256, 1),
            (256, 96, 1),
            (64, 96, 1),
            (96, 64, 1),
        },
    ),
    "kimi without a full-rank gate": (
        {
            **BASE,
            **KIMI,
            "model_type": "kimi_linear",
            "num_hidden_layers": 2,
            "linear_attn_config": {"full_attn_layers": [2], "num_heads": 4, "head_dim": 32},
            "first_k_dense_replace": 2,
        },
        {
            (128, 256, 3),
            (32, 256, 2),
            (128, 32, 2),
            (4, 256, 1),
            (256, 128, 1),
            (1024, 256, 2),
            (256, 512, 2),
            (80, 256, 1),
            (384, 256, 1),
            (512, 64, 1),
            (256, 256, 1),
        },
    ),
    "gemma4 with shared keys and wide MLPs": (
        {
            **BASE,
            "model_type": "gemma4_text",
            "global_head_dim": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
        {
            (384, 256, 1),
            (768, 256, 1),
            (256, 256, 3),
            (256, 512, 4),
            (1024, 256, 2),
            (512, 256, 1),
            (2048, 256, 2),
            (256, 1024, 2),
        },
    ),
    "a mix of mamba and attention": (
        {
            **BASE,
            **MAMBA,
            "model_type": "granitemoehybrid",
            "layer_types": ["mamba", "attention", "mamba", "mamba"],
            "num_local_experts": 0,
            "shared_intermediate_size": 512,
        },
        {(2 * 256 + 2 * 32 + 8, 256, 3), (256, 256, 4), (384, 256, 1), GATE_UP, DOWN},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers(write_model: Write, name: str) -> None:
    config, expected = MODELS[name]
    rows = read_workload(write_model(config)).unquantized
    assert {(g.n, g.k, g.count) for g in rows} == expected


@pytest.mark.parametrize(
    "nest",
    [
        lambda text: {"model_type": "internvl_chat", "llm_config": text},
        lambda text: {"model_type": "new_vl", "language_config": text, "vision_config": {}},
        lambda text: {"model_type": "omni", "thinker_config": {"text_config": text}},
        lambda text: {"architectures": ["LlavaForConditionalGeneration"], "text_config": text},
    ],
)
def test_a_language_model_is_found_in_its_nest(
    write_model: Write, nest: Callable[[Config], Config]
) -> None:
    workload = read_workload(write_model(nest({**BASE, "model_type": "qwen3"})))
    assert {(g.n, g.k, g.count) for g in workload.unquantized} == {QKV, OUT, GATE_UP, DOWN}


def test_a_bad_value_is_named_with_its_nest(write_model: Write) -> None:
    config = {"model_type": "x", "text_config": {**BASE, "model_type": "qwen3", "head_dim": "a"}}
    with pytest.raises(ModelError, match=r"`text_config\.head_dim` must be an integer"):
        read_workload(write_model(config))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layer_types": ["full_attention"]}, "must be one value for each of 4 layers"),
        ({"layer_types": ["full_attention", "x", "x", "x"]}, "`layer_types.1` must be one of"),
        ({"layer_types": 7}, "`layer_types` must be a list of layers"),
        ({"full_attention_interval": 0}, "`full_attention_interval` must be at least 1"),
        ({"full_attention_interval": "4"}, "`full_attention_interval` must be an integer"),
    ],
)
def test_patterns_of_layers_are_checked(write_model: Write, changes: Config, says: str) -> None:
    linear = {f"linear_num_{part}_heads": 4 for part in ("key", "value")}
    dims = {f"linear_{part}_head_dim": 32 for part in ("key", "value")}
    config = {**BASE, **linear, **dims, "model_type": "qwen3_5_text", **changes}
    with pytest.raises(ModelError) as caught:
        read_workload(write_model(config))
    assert says in str(caught.value)


def test_the_table_names_each_model_once() -> None:
    types = [name for entry in ARCHITECTURES for name in entry.model_types]
    classes = [name for entry in ARCHITECTURES for name in {c.lower() for c in entry.classes}]
    assert len(types) == len(set(types)) == len(KNOWN)
    assert len(classes) == len(set(classes))
