"""With `unfused`, a plan has the layers that `humming.convert` makes of the model's own modules."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
import transformers

import humming
from humming.moe.experts import HummingExperts
from tuner.workload import read_workload

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 48,
}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("llama", {}),
        ("qwen2", {}),
        ("gemma2", {}),
        ("mixtral", EXPERTS),
        ("qwen3_moe", {**EXPERTS, "moe_intermediate_size": 32}),
    ],
)
def test_layers_are_those_of_a_converted_model(kind: str, more: dict, tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model(kind, **SMALL, **more)
    config.architectures = [f"{type(config).__name__.removesuffix('Config')}ForCausalLM"]
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    humming.convert(model, "int4g32")
    made: Counter[tuple[str, int, int]] = Counter()
    for module in model.modules():
        if isinstance(module, humming.HummingLinear):
            made["dense", module.out_features, module.in_features] += 1
        if isinstance(module, HummingExperts):
            for stack in (module.up, module.down):
                made["moe", stack.spec.n, stack.spec.k] += 1
    planned: Counter[tuple[str, int, int]] = Counter()
    for group in read_workload(tmp_path, 1, "int4g32", unfused=True).problems:
        planned[group.op, group.n, group.k] += group.count
    assert planned == made
    fused = read_workload(tmp_path, 1, "int4g32").problems
    assert {(64 + 32 + 32, 64)} <= {(g.n, g.k) for g in fused if g.op == "dense"}
