"""Checkpoints without a bias that their model has: refused by name by
from_pretrained and attach, before anything is replaced."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import humming
from humming.errors import CheckpointError
from tests.runtime.test_huggingface import SIZES, TOOLS, gpt_oss_folder, of_gptq, without
from tests.runtime.test_huggingface import _registered as registered  # noqa: F401 (a fixture)

transformers = pytest.importorskip("transformers", minversion="5")

ATTENTION = "model.layers.1.self_attn"
EXPERTS = "model.layers.1.mlp.experts"


def llama(**changes):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**{**SIZES, **changes})
    return transformers.AutoModelForCausalLM.from_config(config)


def stored(folder, model, of=of_gptq, kept=("lm_head",)):
    """`model` as a checkpoint whose linear layers are quantized, but for those that are `kept`."""
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    quantization = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name not in kept:
            parts, quantization = of(*module.weight.shape)
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{key}": part.contiguous() for key, part in parts.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    file = folder / "config.json"
    values = json.loads(file.read_text()) | {"quantization_config": quantization}
    file.write_text(json.dumps(values))
    return folder


def refused(folder, model, says):
    """By both ways; nothing of the model is replaced."""
    before = dict(model.named_modules())
    with pytest.raises(CheckpointError, match=says) as caught:
        humming.attach(model, folder)
    assert "\n" not in str(caught.value)
    assert dict(model.named_modules()) == before
    with pytest.raises(CheckpointError, match=says):
        transformers.AutoModelForCausalLM.from_pretrained(folder)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_bias_that_the_model_has_must_be_stored(tool, tmp_path):
    model = llama(attention_bias=True)
    folder = without(stored(tmp_path, model, TOOLS[tool]), f"{ATTENTION}.q_proj.bias")
    refused(folder, model, rf"must hold a tensor `{ATTENTION}\.q_proj\.bias`")


@pytest.mark.parametrize("tensor", ["gate_up_proj_bias", "down_proj_bias"])
def test_biases_of_experts_must_be_stored(tensor, tmp_path):
    folder, model = gpt_oss_folder(tmp_path)
    without(folder, f"{EXPERTS}.{tensor}")
    says = rf"must hold a tensor `{EXPERTS}\.{tensor}`"
    refused(folder, model, says)
    with pytest.raises(CheckpointError, match=says):
        humming.HummingMoE.from_checkpoint(folder, EXPERTS.rpartition(".")[0])


def test_a_bias_that_only_the_file_has_is_taken_and_none_is_asked_for(tmp_path):
    def of(n, k):
        parts, quantization = of_gptq(n, k)
        return {**parts, "bias": torch.zeros(n)}, quantization

    for tool, has in ((of_gptq, False), (of, True)):
        folder = stored(tmp_path, llama(), tool)
        attached = humming.attach(llama(), folder).get_submodule(f"{ATTENTION}.q_proj")
        assert (attached.bias is not None) is has
