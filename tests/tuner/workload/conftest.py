"""Fixtures of the workload's tests: public configs by name, and configs written for one test. No
assertions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def public_config() -> Callable[[str], Path]:
    """Path of the one public config whose file name starts with the given text and has no side
    file's name.
    """

    def find(start: str) -> Path:
        files = sorted((DATA / "configs").glob(f"{start}*.json"))
        return min(files, key=lambda file: len(file.name))

    return find


@pytest.fixture
def write_model(tmp_path: Path) -> Callable[..., Path]:
    """Writes config.json (and side files, by name) into a folder and returns the folder."""

    def write(config: Any, **side_files: Any) -> Path:
        (tmp_path / "config.json").write_text(json.dumps(config))
        for name, values in side_files.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(values))
        return tmp_path

    return write


@pytest.fixture
def tiny_llama() -> dict[str, Any]:
    """A Llama of 4 layers, small enough to count by hand: qkv 512x256, o 256x256, gate_up 1024x256,
    down 256x512.
    """
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "torch_dtype": "float16",
    }


@pytest.fixture
def tiny_moe(tiny_llama: dict[str, Any]) -> dict[str, Any]:
    """A Qwen3 MoE of 4 layers with 8 experts of width 64, 2 of them per token."""
    return {
        **tiny_llama,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    }
