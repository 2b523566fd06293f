"""Quantized checkpoints that transformers loads: GPTQ, AWQ, FP8, compressed-tensors and gpt-oss'
MXFP4 serve through our layers, by from_pretrained and by attach, and say what their weights say."""

import copy
import json
import pickle

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import humming
from humming import HummingLinear
from humming.checkpoints.folder import Checkpoint
from humming.errors import CheckpointError, UsageError
from tests.checkpoints import test_awq as awq
from tests.checkpoints import test_compressed_tensors as compressed
from tests.checkpoints import test_gptq as gptq
from tests.checkpoints.test_fp8 import fp8, gpt_oss_tensors, scales

transformers = pytest.importorskip("transformers", minversion="5")

SIZES = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 320,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def of_gptq(n, k):
    return gptq.gptq_tensors(n, k, 4, 32, 1)[0], gptq.config(4, 32)


def of_awq(n, k):
    return awq.gemm_tensors(n, k, 32)[0], awq.config(32)


def of_fp8(n, k):
    blocks = (-(-n // 128), -(-k // 128))
    tensors = {"weight": fp8(n, k), "weight_scale_inv": scales(*blocks)}
    return tensors, {"quant_method": "fp8", "weight_block_size": [128, 128]}


def of_compressed(n, k):
    weights = compressed.ints(4, 32, symmetric=False)
    return compressed.packed(n, k, 4, 32)[0], compressed.config(weights, ignore=["lm_head"])


TOOLS = {"gptq": of_gptq, "awq": of_awq, "fp8": of_fp8, "compressed-tensors": of_compressed}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    from transformers.quantizers import auto

    kept = dict(auto.AUTO_QUANTIZER_MAPPING), dict(auto.AUTO_QUANTIZATION_CONFIG_MAPPING)
    import humming.huggingface as huggingface

    assert {*TOOLS, "mxfp4"} <= set(huggingface.register())
    yield
    auto.AUTO_QUANTIZER_MAPPING.update(kept[0])
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING.update(kept[1])


def folder_of(tool, folder):
    """A Llama whose linear layers are stored as `tool` stores them."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES))
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            parts, quantization = TOOLS[tool](*module.weight.shape)
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{key}": part.contiguous() for key, part in parts.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    file = folder / "config.json"
    config = json.loads(file.read_text()) | {"quantization_config": quantization}
    file.write_text(json.dumps(config))
    return folder


def plain_of(folder):
    """The same model with dequantized weights in nn.Linear layers, fp32."""
    checkpoint = Checkpoint(folder)
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES))
    files = checkpoint.files
    kept = {name for name, _ in model.named_parameters()}
    state = {name: files.tensor(name).float() for name in files.names if name in kept}
    for name in checkpoint.quantized_names:
        state[f"{name}.weight"] = checkpoint.layer(name).dequantized(torch.float32)
    model.load_state_dict(state)
    return model.float().eval()


def said(model, tokens=8):
    prompt = torch.tensor([[17], [230]])  # as many rows as later on: one kernel is compiled
    with torch.inference_mode():
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            do_sample=False,
        )


@pytest.mark.parametrize(
    "tool",
    ["gptq", *(pytest.param(tool, marks=pytest.mark.slow) for tool in TOOLS if tool != "gptq")],
)
def test_a_checkpoint_serves_through_our_layers(tool, tmp_path):
    folder = folder_of(tool, tmp_path)
    plain = plain_of(folder)
    expected = said(plain)
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["error_msgs"]
    layers = [name for name, m in model.named_modules() if type(m) is HummingLinear]
    assert layers == [n for n, m in plain.named_modules() if isinstance(m, nn.Linear)][:-1]
    assert all(not t.is_meta for t in (*model.parameters(), *model.buffers()))
    assert torch.equal(said(model), expected)
    assert model.quantization_method == tool
    half = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    assert {m.dtype for m in half.modules() if type(m) is HummingLinear} == {torch.bfloat16}
    attached = humming.attach(plain, folder)
    assert type(attached.model.layers[1].mlp.up_proj) is HummingLinear
    assert torch.equal(said(attached), expected)


@pytest.mark.slow
def test_compiled_attached_layers_say_the_same(tmp_path):
    folder = folder_of("gptq", tmp_path)
    plain = plain_of(folder)
    expected = said(plain)
    model = humming.attach(plain, folder)
    model.forward = torch.compile(model.forward, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        assert torch.equal(said(model), expected)


def gpt_oss_folder(folder):
    sizes = {**SIZES, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 16}
    sizes |= {"hidden_size": 96, "head_dim": 24, "intermediate_size": 64}
    config = transformers.GptOssConfig(**sizes, layer_types=["sliding_attention"] * 2)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name in ("sinks", "bias"):
                nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors = {key: t for key, t in tensors.items() if ".experts." not in key}
    for layer in range(2):
        for key, tensor in gpt_oss_tensors(3, 64, 96).items():
            block, _, part = key.rpartition("experts.")
            assert block is not None
            tensors[f"model.layers.{layer}.mlp.experts.{part}"] = tensor.contiguous()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    file = folder / "config.json"
    file.write_text(
        json.dumps(
            json.loads(file.read_text()) | {"quantization_config": {"quant_method": "mxfp4"}}
        )
    )
    return folder, model


def test_gpt_oss_experts_are_served_as_stored(tmp_path):
    folder, plain = gpt_oss_folder(tmp_path)
    checkpoint = Checkpoint(folder)
    for number, layer in enumerate(plain.model.layers):
        experts = layer.mlp.experts
        for expert in range(3):
            start = f"model.layers.{number}.mlp.experts.{expert}"
            gate, up, down = (
                checkpoint.layer(f"{start}.{part}")
                for part in ("gate_proj", "up_proj", "down_proj")
            )
            wide = torch.stack([gate.dequantized(torch.float32), up.dequantized(torch.float32)], 1)
            experts.gate_up_proj.data[expert] = wide.flatten(0, 1).T
            experts.down_proj.data[expert] = down.dequantized(torch.float32).T
            if gate.bias is not None:
                both = torch.stack([gate.bias, up.bias], 1).flatten()
                experts.gate_up_proj_bias.data[expert] = both
                experts.down_proj_bias.data[expert] = down.bias
            else:
                experts.gate_up_proj_bias.data[expert] = 0
                experts.down_proj_bias.data[expert] = 0
    expected = said(plain.float().eval())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert type(model.model.layers[0].mlp.experts).__name__ == "HummingExperts"
    assert torch.equal(said(model), expected)
    assert torch.equal(said(humming.attach(plain, folder)), expected)


def test_a_loaded_model_is_copied_and_pickled(tmp_path):
    folder = folder_of("gptq", tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    expected = said(model)
    assert torch.equal(said(copy.deepcopy(model)), expected)
    assert torch.equal(said(pickle.loads(pickle.dumps(model))), expected)


def test_what_does_not_fit_gets_a_sentence(tmp_path):
    import humming.huggingface as huggingface

    with pytest.raises(UsageError, match="methods must be some of"):
        huggingface.register(["gptx"])
    with pytest.raises(UsageError, match=r"got the string 'gptq'; use \['gptq'\]"):
        huggingface.register("gptq")
    folder = folder_of("awq", tmp_path)
    other = transformers.LlamaConfig(**{**SIZES, "num_hidden_layers": 1})
    model = transformers.AutoModelForCausalLM.from_config(other)
    with pytest.raises(CheckpointError, match=r"lacks model\.layers\.1\.mlp"):
        humming.attach(model, folder)
    assert not any(isinstance(m, HummingLinear) for m in model.modules())
    wide = transformers.LlamaConfig(**{**SIZES, "intermediate_size": 256})
    with pytest.raises(CheckpointError, match="must have the sizes of the model's layer"):
        humming.attach(transformers.AutoModelForCausalLM.from_config(wide), folder)
    with pytest.raises(CheckpointError, match="attach needs the checkpoint's folder"):
        humming.attach(nn.Sequential(nn.Linear(4, 4)))


@pytest.mark.gpu
def test_a_checkpoint_is_loaded_onto_a_gpu(tmp_path):
    folder = folder_of("gptq", tmp_path)
    ids = torch.randint(1, 320, (1, 24))
    with torch.inference_mode():
        expected = plain_of(folder)(ids).logits
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, device_map="cuda"
        )
        assert all(t.is_cuda for t in (*model.parameters(), *model.buffers()))
        assert sum(type(m) is HummingLinear for m in model.modules()) == 14
        found = humming.prepare(model)(ids.cuda()).logits.float().cpu()
    assert float((found - expected).norm() / expected.norm()) < 0.05


def without(folder, *ends):
    """The checkpoint in `folder` without the tensors whose names end so."""
    file = folder / "model.safetensors"
    kept = {name: t for name, t in load_file(file).items() if not name.endswith(ends)}
    save_file(kept, file, {"format": "pt"})
    return folder


TORN = "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("tool", "tensor"),
    [
        ("fp8", "weight_scale_inv"),
        ("fp8", "weight"),
        ("gptq", "scales"),
        ("gptq", "qweight"),
        ("awq", "scales"),
        ("awq", "qweight"),
        ("compressed-tensors", "weight_scale"),
        ("compressed-tensors", "weight_packed"),
    ],
)
@pytest.mark.parametrize("where", [TORN, ""])
def test_a_layer_without_its_scales_or_codes_is_refused_by_name(tool, tensor, where, tmp_path):
    folder = without(folder_of(tool, tmp_path), f"{where}.{tensor}")
    model = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**SIZES))
    before = dict(model.named_modules())
    missing = f"must hold a tensor `{where or '.*'}.{tensor}"
    with pytest.raises(CheckpointError, match=missing):
        humming.attach(model, folder)
    assert dict(model.named_modules()) == before
    with pytest.raises(CheckpointError, match=missing):
        transformers.AutoModelForCausalLM.from_pretrained(folder)
