"""Which layers are dense and which have experts, and what stands in them. Quantization is in
test_spellings.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.workload import LayerGroup, read_workload

Config = dict[str, Any]


def counted(groups: tuple[LayerGroup, ...]) -> dict[str, int]:
    return {name: group.count for group in groups for name in group.layers}


@pytest.mark.parametrize(
    ("step", "dense_layers", "sparse"),
    [(1, [], 4), (2, [], 2), (1, [0, 3], 2), (2, [1], 1), (8, [], 0), (None, None, 4)],
)
def test_sparse_layers_by_step_and_list(
    write_model: Callable[..., Path],
    tiny_moe: Config,
    step: int | None,
    dense_layers: list[int] | None,
    sparse: int,
) -> None:
    config = {**tiny_moe, "decoder_sparse_step": step, "mlp_only_layers": dense_layers}
    counts = counted(read_workload(write_model(config)).unquantized)
    assert counts["self_attn.qkv_proj"] == 4
    assert counts.get("mlp.experts.w13", 0) == counts.get("mlp.gate", 0) == sparse
    assert counts.get("mlp.gate_up_proj", 0) == 4 - sparse


def test_qwen2_moe_has_a_shared_expert_and_its_gate(
    write_model: Callable[..., Path], tiny_moe: Config
) -> None:
    config = {
        **tiny_moe,
        "model_type": "qwen2_moe",
        "architectures": ["Qwen2MoeForCausalLM"],
        "shared_expert_intermediate_size": 128,
    }
    workload = read_workload(write_model(config), 2, "int8")
    assert [(g.layers[0], g.op, g.n, g.k) for g in workload.problems] == [
        ("self_attn.qkv_proj", "dense", 256, 256),
        ("self_attn.o_proj", "dense", 256, 128),
        ("mlp.shared_expert.gate_up_proj", "dense", 128, 256),
        ("mlp.shared_expert.down_proj", "dense", 256, 64),
        ("mlp.experts.w13", "moe", 64, 256),
        ("mlp.experts.w2", "moe", 256, 32),
    ]
    assert [(g.layers, g.n) for g in workload.unquantized] == [
        (("mlp.gate",), 8),
        (("mlp.shared_expert_gate",), 1),
    ]


def test_mixtral_names_its_experts_otherwise(public_config: Callable[[str], Path]) -> None:
    workload = read_workload(public_config("TheBloke__Mixtral"), 8)
    assert [(g.layers[0], g.n, g.k, g.experts, g.top_k) for g in workload.problems] == [
        ("self_attn.qkv_proj", 768, 4096, None, None),
        ("self_attn.o_proj", 4096, 512, None, None),
        ("block_sparse_moe.experts.w13", 3584, 4096, 8, 2),
        ("block_sparse_moe.experts.w2", 4096, 1792, 8, 2),
    ]
    assert counted(workload.unquantized) == {"block_sparse_moe.gate": 32}


def test_equal_shapes_share_a_row(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    config = {**tiny_llama, "num_key_value_heads": None, "intermediate_size": 384}
    rows = read_workload(write_model(config)).unquantized
    assert [(g.n, g.k, g.count, g.layers) for g in rows] == [
        (768, 256, 8, ("self_attn.qkv_proj", "mlp.gate_up_proj")),
        (256, 256, 4, ("self_attn.o_proj",)),
        (256, 384, 4, ("mlp.down_proj",)),
    ]


@pytest.mark.parametrize("how", ["absent", "null"])
def test_heads_that_llama_leaves_out(
    write_model: Callable[..., Path], tiny_llama: Config, how: str
) -> None:
    config = {**tiny_llama, "num_key_value_heads": None, "head_dim": None}
    if how == "absent":
        config = {key: value for key, value in config.items() if value is not None}
    workload = read_workload(write_model(config))
    assert workload.unquantized[0].n == 3 * 256
    assert workload.warnings == ()


@pytest.mark.parametrize(
    ("model", "absent", "n"),
    [("mistral", "num_key_value_heads", 64 * (8 + 16)), ("qwen3", "head_dim", 128 * (8 + 4))],
)
def test_what_a_model_class_assumes_is_said(
    write_model: Callable[..., Path], tiny_llama: Config, model: str, absent: str, n: int
) -> None:
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    config = {**tiny_llama, **sizes, "model_type": model, "architectures": None}
    del config[absent]
    workload = read_workload(write_model(config))
    assert workload.unquantized[0].n == n
    assert len(workload.warnings) == 1
    assert f"has no {absent}: taken as" in workload.warnings[0]


@pytest.mark.parametrize(
    ("keys", "dtype"),
    [
        ({}, "bf16"),
        ({"torch_dtype": None}, "bf16"),
        ({"torch_dtype": "float16"}, "fp16"),
        ({"dtype": "bfloat16", "torch_dtype": "float16"}, "bf16"),
        ({"dtype": "torch.float32"}, "fp32"),
    ],
)
def test_dtype(
    write_model: Callable[..., Path], tiny_llama: Config, keys: Config, dtype: str
) -> None:
    config = {key: value for key, value in tiny_llama.items() if key != "torch_dtype"}
    workload = read_workload(write_model({**config, **keys}))
    assert workload.dtype == dtype
    assert {group.format for group in workload.unquantized} == {dtype}
