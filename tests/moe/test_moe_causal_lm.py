"""Small causal language models of transformers, float32: with converted experts they
generate the same tokens as with dequantized ones."""

import copy

import pytest
import torch

import humming
from humming.moe.experts import HummingExperts

transformers = pytest.importorskip("transformers", minversion="5.0")

SMALL = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
}
MODELS = {
    "Mixtral": {"intermediate_size": 48, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3Moe": {
        "intermediate_size": 80,
        "moe_intermediate_size": 48,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
    },
    "GptOss": {"intermediate_size": 48, "num_local_experts": 4, "num_experts_per_tok": 2},
}


def model_of(name: str) -> torch.nn.Module:
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(
        **SMALL, **MODELS[name], bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    model = getattr(transformers, f"{name}ForCausalLM")(config).float().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    return model


def dequantized(module: HummingExperts, original: torch.nn.Module) -> torch.nn.Module:
    """`original` with the weights that the converted experts have."""
    up = torch.stack([q.dequantize(torch.float32) for q in module.up.quantized()])
    down = torch.stack([q.dequantize(torch.float32) for q in module.down.quantized()])
    if getattr(original, "is_transposed", False):
        if not original.is_concatenated:
            half = up.shape[1] // 2
            up = torch.stack([up[:, :half], up[:, half:]], 2).flatten(1, 2)
        up, down = up.transpose(1, 2), down.transpose(1, 2)
    with torch.no_grad():
        original.gate_up_proj.copy_(up)
        original.down_proj.copy_(down)
    return original


@pytest.mark.parametrize("name", MODELS)
def test_the_same_tokens_come_out(name):
    model = model_of(name)
    ours = humming.convert(copy.deepcopy(model), "int4g16", skip=["lm_head", "*_proj"])
    found = {n: m for n, m in ours.named_modules() if isinstance(m, HummingExperts)}
    assert len(found) == 2
    for layer_name, module in found.items():
        dequantized(module, model.get_submodule(layer_name))
    prompt = torch.tensor([[3, 14, 15, 9, 26, 5]])
    with torch.inference_mode():
        wanted = model.generate(prompt, max_new_tokens=12, do_sample=False)
        assert torch.equal(ours.generate(prompt, max_new_tokens=12, do_sample=False), wanted)
        logits = model(prompt).logits
        torch.testing.assert_close(ours(prompt).logits, logits, atol=1e-3, rtol=1e-3)


def test_recorded_routing_is_that_of_the_calls(tmp_path):
    ours = humming.convert(model_of("Qwen3Moe"), "int4g16", skip=["*_proj", "lm_head"])
    with torch.inference_mode(), humming.record_routing(ours, tmp_path / "routing.json") as record:
        ours(torch.arange(3, 33)[None])
    assert len(record.counts) == 2
    assert all(sum(counts) == 30 * 3 for counts in record.counts.values())
    assert (tmp_path / "routing.json").exists()
    record.apply()
    specs = [m.up.spec.routing for m in ours.modules() if isinstance(m, HummingExperts)]
    assert all(routing.startswith("shares") for routing in specs)
