"""A real causal LM, built by transformers from a config with random weights, generates the same
tokens with HummingLinear layers as with the dequantized weights in nn.Linear."""

import copy

import pytest
import torch
from torch import nn

import humming
from humming import HummingLinear
from humming.jit.identity import serving_device
from humming.quantize import quantize
from humming.spec.layouts import layout_for
from humming.spec.legality import families_for
from humming.spec.problem import Problem

transformers = pytest.importorskip("transformers")

FORMATS = ("int4g128", "int8", "uint4g128z", "fp8e4m3", "nvfp4")
MORE_FORMATS = (
    *("int7g96", "int6g128", "int5", "int4", "int3g32", "int2g64", "int1g32", "uint3g64z"),
    *("uint4g64zf", "uint8z", "fp8e4m3t", "fp8e4m3b128", "fp8e5m2", "mxfp4", "mxfp8e4m3"),
)
SIZES = {
    "hidden_size": 192,
    "intermediate_size": 352,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 320,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "initializer_range": 0.2,  # so that one token stands out
    "eos_token_id": None,
    "pad_token_id": 0,
}
NEW_TOKENS = 12


def runs(format: str) -> bool:
    """Whether this machine serves the model's layers in `format`."""
    device = serving_device()
    layer = Problem(format, 192, 352, 1, "fp32", "fp32", layout=layout_for(device, format))
    return bool(families_for(layer, device))


def built(kind: str) -> nn.Module:
    config = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[kind](**SIZES)
    torch.manual_seed(7)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for module in model.modules():  # Qwen2's q, k and v have a bias, which is zero at first
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.normal_(module.bias, std=0.1)
    return model.float().eval()


def dequantized(model: nn.Module, format: str) -> nn.Module:
    """`model` with each weight that humming.convert replaces rounded as quantizing rounds it."""
    model = copy.deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            module.weight.data = quantize(module.weight.data, format).dequantize().float()
    return model


def generated(model: nn.Module, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy tokens [batch, prompt + NEW_TOKENS], and the logits of each step."""
    with torch.inference_mode():
        out = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return out.sequences, torch.stack(out.logits)


def check(kind: str, format: str) -> None:
    model = built(kind)
    plain = dequantized(model, format)
    linears = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
    ours = humming.convert(model, format)
    layers = [name for name, m in ours.named_modules() if isinstance(m, HummingLinear)]
    assert layers == [name for name in linears if name != "lm_head"] and len(layers) == 14
    prompt = torch.randint(1, 320, (2, 5), generator=torch.Generator().manual_seed(3))
    tokens, logits = generated(ours, prompt)
    expected, expected_logits = generated(plain, prompt)
    assert tokens.shape == (2, 5 + NEW_TOKENS)
    assert torch.equal(tokens, expected)
    assert len(set(tokens[:, 5:].flatten().tolist())) > 3  # it says something
    torch.testing.assert_close(logits, expected_logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("format", [name for name in FORMATS if runs(name)])
def test_a_llama_says_the_same(format):
    check("llama", format)


@pytest.mark.slow
@pytest.mark.parametrize("format", [name for name in MORE_FORMATS if runs(name)])
def test_a_llama_says_the_same_in_every_format(format):
    check("llama", format)


def test_a_model_whose_layers_have_a_bias_says_the_same():
    check("qwen2", "int4g128")


def test_the_format_of_the_release_is_among_those_that_are_tried():
    assert runs("int4g128")
