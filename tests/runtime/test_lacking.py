"""Checkpoints without a bias, or without a layer, that their model has: refused by name by
from_pretrained and attach, before anything is replaced; what may be absent is not."""

import json
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import humming
from humming import HummingLinear
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


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ["model.layers.1.mlp.down_proj", "model.layers.0.mlp.up_proj"])
def test_a_layer_that_is_absent_altogether_is_refused_by_name(name, tool, tmp_path):
    folder = stored(tmp_path, llama(), TOOLS[tool])
    kept = {key: t for key, t in load_file(folder / "model.safetensors").items() if name not in key}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
    refused(folder, llama(), f"must hold the layer {name}, as it holds model")


def test_absent_experts_are_refused_by_name(tmp_path):
    folder, model = gpt_oss_folder(tmp_path)
    without(folder, *(f"{EXPERTS}.{p}_proj_{end}" for p in ("gate_up", "down")
                      for end in ("blocks", "scales")))  # fmt: skip
    refused(folder, model, f"must hold the layer {EXPERTS}, as it holds")


def test_what_is_tied_or_kept_as_floats_is_not_absent(tmp_path):
    kept = ("lm_head", "model.layers.1.mlp.down_proj")
    for tied in (False, True):
        model = llama(tie_word_embeddings=tied)
        folder = stored(tmp_path / str(tied), model, kept=kept)
        names = load_file(folder / "model.safetensors")
        assert ("lm_head.weight" in names) is not tied
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            humming.attach(model, folder)
            loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
        for whole in (model, loaded):
            layers = whole.model.layers
            assert type(layers[0].mlp.down_proj) is HummingLinear
            assert type(layers[1].mlp.down_proj) is type(whole.lm_head) is nn.Linear


def test_a_layer_that_shares_the_weight_of_one_that_is_stored_is_not_absent(tmp_path):
    model = llama()
    folder = stored(tmp_path, model)
    without(folder, *(f"{ATTENTION}.k_proj.{end}" for end in of_gptq(32, 32)[0]))
    refused(folder, model, f"must hold the layer {ATTENTION}.k_proj")
    layers = model.model.layers
    layers[1].self_attn.k_proj.weight = layers[0].self_attn.k_proj.weight
    assert type(humming.attach(model, folder).lm_head) is nn.Linear


def test_a_head_of_another_task_and_an_adapter_are_named_and_stay(tmp_path):
    folder = stored(tmp_path, llama())
    kind = transformers.AutoModelForSequenceClassification
    other = kind.from_config(transformers.LlamaConfig(**SIZES))
    score = other.score
    with pytest.warns(RuntimeWarning, match=r"has no weight of score: what the model has there"):
        humming.attach(other, folder)
    assert other.score is score
    assert type(other.model.layers[1].mlp.up_proj) is HummingLinear
    assert type(kind.from_pretrained(folder).model.layers[1].mlp.up_proj) is HummingLinear
    model = llama()
    model.model.layers[0].mlp.adapter = nn.Linear(128, 8)
    with pytest.warns(RuntimeWarning, match=r"no weight of model\.layers\.0\.mlp\.adapter"):
        humming.attach(model, folder)


def test_a_float_layer_that_the_file_has_under_another_path_is_not_warned_of(tmp_path):
    folder, model = stored(tmp_path, llama()), llama()
    tensors = load_file(folder / "model.safetensors")
    tensors["visual.layers.0.mlp.adapter.weight"] = torch.zeros(8, 128)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    model.model.layers[0].mlp.adapter = nn.Linear(128, 8, bias=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        humming.attach(model, folder)
