"""What cannot be planned gets one sentence with the file, the key, the value and the remedy. The
fuzz is in test_config_fuzz.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import read_workload

Config = dict[str, Any]
MISSING = object()


def refusal(path: Path | str, **arguments: Any) -> str:
    """The sentence with which `path` is refused."""
    with pytest.raises(ModelError) as caught:
        read_workload(path, **arguments)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "; " in sentence
    return sentence


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("hidden_size", MISSING, "`hidden_size` must be a positive integer, but it is missing"),
        ("hidden_size", None, "`hidden_size` must be a positive integer, but it is missing"),
        ("hidden_size", -1, "`hidden_size` must be at least 1, but got -1"),
        ("hidden_size", 0, "`hidden_size` must be at least 1, but got 0"),
        ("hidden_size", "256", '`hidden_size` must be an integer, but got "256"'),
        ("hidden_size", 256.0, "`hidden_size` must be an integer, but got 256.0"),
        ("hidden_size", True, "`hidden_size` must be an integer, but got true"),
        ("hidden_size", [256], "`hidden_size` must be an integer, but got a list of 1 items"),
        ("hidden_size", float("nan"), "`hidden_size` must be an integer, but got NaN"),
        ("hidden_size", 2**25, "`hidden_size` must be at most 16777216, but got 33554432"),
        ("num_hidden_layers", 10**9, "`num_hidden_layers` must be at most 1024"),
        ("num_key_value_heads", 3, "`num_attention_heads % num_key_value_heads == 0` must hold"),
        ("num_attention_heads", 6, "`hidden_size % num_attention_heads == 0` must hold"),
        ("model_type", 7, "`model_type` must be a string, but got 7"),
        ("architectures", "x", '`architectures` must be a list of class names, but got "x"'),
        ("architectures", ["Eagle3"], 'but got "Eagle3" of model_type "llama"'),
        (
            "torch_dtype",
            "int8",
            '`torch_dtype` must be bfloat16, float16 or float32, but got "int8"',
        ),
        ("quantization_config", [], "`quantization_config` must be an object"),
        ("quantization_config", {"x": 1}, "`quantization_config.quant_method` must be one of"),
    ],
)
def test_values(
    write_model: Callable[..., Path], tiny_llama: Config, key: str, value: object, says: str
) -> None:
    config = {**tiny_llama, key: value}
    if value is MISSING:
        del config[key]
    folder = write_model(config)
    sentence = refusal(folder)
    assert sentence.startswith(f"{folder}/config.json: ")
    assert says in sentence


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bits": 0}, "`quantization_config.bits` must be at least 1, but got 0"),
        ({"bits": "4"}, '`quantization_config.bits` must be an integer, but got "4"'),
        ({"group_size": 0}, "`quantization_config.group_size` must be -1 or at least 1"),
        ({"sym": "yes"}, '`quantization_config.sym` must be true or false, but got "yes"'),
        (
            {"quant_method": "bitnet"},
            "`quantization_config.quant_method` must be one of auto-round",
        ),
        ({"quant_method": 4}, "`quantization_config.quant_method` must be a string, but got 4"),
        ({"dynamic": {"-:(": {}}}, "must be made of valid regular expressions, but got"),
        (
            {"dynamic": {"x": {"bits": None}}},
            "`quantization_config.dynamic.bits` must be an integer",
        ),
        ({"modules_to_not_convert": "gate"}, "must be a list, but got"),
        ({"modules_in_block_to_quantize": [[1]]}, "must be a list of (lists of) module names"),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, "two equal positive integers"),
        ({"quant_method": "fp8", "fmt": "e3m4"}, "`quantization_config.fmt` must be one of e4m3"),
        (
            {"quant_method": "compressed-tensors"},
            "`quantization_config.config_groups` must be given",
        ),
    ],
)
def test_quantization_values(
    write_model: Callable[..., Path], tiny_llama: Config, changes: Config, says: str
) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, **changes}
    assert says in refusal(write_model({**tiny_llama, "quantization_config": gptq}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_experts": None}, "`num_experts` must be a positive integer, but it is missing"),
        ({"num_experts_per_tok": 9}, "`num_experts_per_tok <= num_experts` must hold"),
        ({"moe_intermediate_size": {}}, "`moe_intermediate_size` must be an integer"),
        (
            {"moe_intermediate_size": [64]},
            "`moe_intermediate_size` must be one value for each of 4",
        ),
        (
            {"moe_intermediate_size": [64, 64, "x", 64]},
            "`moe_intermediate_size` must be an integer",
        ),
        ({"mlp_only_layers": ["0"]}, '`mlp_only_layers.0` must be an integer, but got "0"'),
        ({"architectures": ["Qwen3ForCausalLM"]}, "must name the same model"),
    ],
)
def test_expert_values(
    write_model: Callable[..., Path], tiny_moe: Config, changes: Config, says: str
) -> None:
    assert says in refusal(write_model({**tiny_moe, **changes}))


def test_a_model_s_own_key_is_named(write_model: Callable[..., Path], tiny_moe: Config) -> None:
    config = {**tiny_moe, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    del config["num_experts"]
    assert "`num_local_experts` must be a positive integer" in refusal(write_model(config))


def test_an_unknown_architecture_is_named(write_model: Callable[..., Path]) -> None:
    config = {"model_type": "deepseek_v9", "architectures": ["DeepseekV9ForCausalLM"]}
    sentence = refusal(write_model(config))
    assert '"DeepseekV9ForCausalLM" of model_type "deepseek_v9"' in sentence
    assert "did you mean 'deepseek_v" in sentence
    assert "`model_type` must be a model's architecture" in refusal(write_model({}))


def test_a_quantization_alone_is_no_model(write_model: Callable[..., Path]) -> None:
    sentence = refusal(write_model({"bits": 4, "group_size": 128, "sym": True}))
    assert "describes only a quantization; name the config.json that it belongs to" in sentence


@pytest.mark.parametrize(
    ("heads", "product"), [(256, "num_attention_heads * head_dim"), (64, "self_attn.qkv_proj")]
)
def test_widths_beyond_32_bits(
    write_model: Callable[..., Path], tiny_llama: Config, heads: int, product: str
) -> None:
    sizes = {"num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": 2**24}
    sentence = refusal(write_model({**tiny_llama, **sizes}))
    assert f"`{product} < 2**31` must hold, but got" in sentence


@pytest.mark.parametrize("tp", [0, -1, True, "2", 1.0, None])
def test_tp(write_model: Callable[..., Path], tiny_llama: Config, tp: object) -> None:
    assert "`tp >= 1` must hold, but got tp=" in refusal(write_model(tiny_llama), tp=tp)


@pytest.mark.parametrize("tp", [3, 8, 2**40])
def test_tp_and_heads(write_model: Callable[..., Path], tiny_llama: Config, tp: int) -> None:
    assert "`num_attention_heads % tp == 0`" in refusal(write_model(tiny_llama), tp=tp)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"{", "must be JSON, but is not (line 1, column 2"),
        (b"[]", "must be a JSON object, but got a list of 0 items"),
        (b"null", "must be a JSON object, but got null"),
        (b"\x80\x81\xff\x00", "holds other bytes"),
        (b"\x00" * 100, "must be JSON"),
        (b"[" * 200_000, "nests too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a number too long"),
    ],
)
def test_content(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    sentence = refusal(file)
    assert says in sentence
    assert str(file) in sentence


def test_a_bom_is_no_fault(tmp_path: Path, tiny_llama: Config) -> None:
    file = tmp_path / "model.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(tiny_llama).encode())
    assert read_workload(file).model == "model"


def test_paths(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "none.json")
    assert "must hold a config.json, but has none" in refusal(tmp_path)
    assert "must name a config.json" in refusal("")
    assert "cannot be read" in refusal("nul\0byte")
    assert "cannot be read" in refusal("x" * 5000)
    (tmp_path / "config.json").mkdir()
    assert "must be a regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "must be a regular file" in refusal(tmp_path / "pipe")


def test_100_megabytes_are_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as stream:
        stream.truncate(100 * 2**20)
    assert "must be at most 16 MiB" in refusal(file)


def test_a_broken_side_file_is_named(write_model: Callable[..., Path], tiny_llama: Config) -> None:
    sentence = refusal(write_model(tiny_llama, hf_quant_config={"producer": {}}))
    assert "hf_quant_config.json: `quantization` must be an object, but got null" in sentence


@pytest.mark.parametrize("factor", [10**59, float("inf"), -1.0])
def test_a_width_of_no_machine_is_refused(
    public_config: Callable[[str], Path], write_model: Callable[..., Path], factor: float
) -> None:
    config = json.loads(public_config("nvidia__Llama-3_3-Nemotron-Super-49B").read_text())
    config["block_configs"][0]["ffn"]["ffn_mult"] = factor
    assert f"but got {'Infinity' if factor == float('inf') else factor}" in refusal(
        write_model(config)
    )
