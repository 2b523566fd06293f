"""A model of transformers gets its checkpoint's experts by attach, or, where one of them is not as
it should be, nothing at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import humming
from humming.checkpoints.folder import Checkpoint
from humming.errors import CheckpointError, LayoutError
from tests.checkpoints.test_fp8 import fp8, scales

transformers = pytest.importorskip("transformers", minversion="5")

H, WIDTH, EXPERTS, LAYERS = 64, 32, 4, 2
SIZES = {
    "hidden_size": H,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 64,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
    "intermediate_size": WIDTH,
}
LAST = f"model.layers.{LAYERS - 1}.mlp.experts.{EXPERTS - 1}"


def model_of(**changed: int) -> nn.Module:
    torch.manual_seed(2)
    config = transformers.Qwen3MoeConfig(**{**SIZES, **changed})
    return transformers.AutoModelForCausalLM.from_config(config).float().eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model with its attention and experts in FP8."""
    model = model_of()
    model.config.save_pretrained(tmp_path)
    tensors = {
        name: tensor.detach().clone()
        for name, tensor in model.state_dict().items()
        if ".experts." not in name
    }
    sizes = {f"{n}.": m.weight.shape for n, m in model.named_modules() if "_proj" in n}
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            start = f"model.layers.{layer}.mlp.experts.{expert}."
            sizes |= {f"{start}{part}_proj.": (WIDTH, H) for part in ("gate", "up")}
            sizes[f"{start}down_proj."] = (H, WIDTH)
    for start, (n, k) in sizes.items():
        tensors[f"{start}weight"], tensors[f"{start}weight_scale_inv"] = fp8(n, k), scales(1, 1)
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    file = tmp_path / "config.json"
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"quantization_config": quantization})
    )
    return tmp_path


def test_experts_are_attached_as_they_are_stored(folder):
    model, x, stored = model_of(), torch.randn(5, H), Checkpoint(folder)
    whole = humming.HummingMoE.from_checkpoint(folder, "model.layers.1.mlp", dtype=torch.float32)
    assert humming.attach(model, folder) is model
    block = model.model.layers[1].mlp
    assert type(block.experts) is humming.HummingExperts
    with torch.inference_mode():
        ids, weights = whole.choose(x)
        assert torch.equal(block.experts(x, ids, weights), whole.experts(x, ids, weights))
    down = stored.layer(f"{LAST}.down_proj").dequantized()
    assert torch.equal(block.experts.down.quantized()[-1].dequantize(), down)
    assert type(model.model.layers[1].self_attn.q_proj) is humming.HummingLinear


def without(*ends: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if name.endswith(ends)]:
            del tensors[name]

    return change


def with_tensor(name: str, tensor: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.__setitem__(name, tensor)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (without(f"{LAST}.up_proj.weight_scale_inv"), "must hold a tensor .*up_proj.weight_scale"),
        (without(f"{LAST}.down_proj.weight"), r"must hold a .*3\.down_proj"),
        (without(f"{LAST}.gate_proj.weight", f"{LAST}.gate_proj.weight_scale_inv"), "gate_proj"),
        (with_tensor(f"{LAST}.down_proj.weight", fp8(H, 2 * WIDTH)), r"must be alike .*64, 64"),
        (with_tensor(f"{LAST}.down_proj.weight", torch.ones(H, WIDTH)), "must be float8"),
        (without("mlp.gate.weight"), r"must hold a layer model\.layers\.0\.mlp\.gate"),
    ],
)
def test_a_checkpoint_that_lacks_something_of_an_expert_replaces_nothing(change, says, folder):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"format": "pt"})
    assert_refused(model_of(), folder, CheckpointError, says)


def test_experts_of_other_sizes_replace_nothing(folder):
    says = r"model\.layers\.0\.mlp must have as many weights as the model's experts"
    assert_refused(model_of(num_experts=8), folder, CheckpointError, says)
    assert_refused(model_of(moe_intermediate_size=64), folder, CheckpointError, says)


def test_a_type_that_the_device_does_not_serve_replaces_nothing(folder, monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr("humming.attach._where", lambda *_: (gpu, torch.float32))
    says = r"model\.layers\.0\..*: a layer on CUDA must be bf16 or fp16, but got fp32"
    assert_refused(model_of(), folder, LayoutError, says)


def assert_refused(model: nn.Module, folder: Path, error: type[Exception], says: str) -> None:
    before = dict(model.named_modules())
    with pytest.raises(error, match=says):
        humming.attach(model, folder)
    assert dict(model.named_modules()) == before
