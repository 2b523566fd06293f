"""A causal LM on a GPU: teacher-forced logits in bf16, eager, compiled and captured, are as near to
fp32 on the dequantized weights as torch's own layers are.

Its speed is benchmarks/causal_lm.py.
"""

import copy

import pytest
import torch
from torch import nn

import humming
from humming import HummingLinear
from humming.quantize import quantize

pytestmark = pytest.mark.gpu

transformers = pytest.importorskip("transformers", minversion="5")

SIZES = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "vocab_size": 2048,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
}
CASES = (("int4g128", 48), ("int4g128", 1), ("int4g128", 200), ("fp8e4m3", 40), ("mxfp4", 1))


def with_weights(model, format, dtype):
    """`model` with each weight that humming.convert replaces as dequantizing leaves it."""
    model = copy.deepcopy(model)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "lm_head":
            weight = quantize(module.weight.data, format).dequantize(torch.float32)
            module.weight.data = weight
    return model.to(dtype)


@pytest.mark.parametrize(("format", "tokens"), CASES)
def test_logits_are_as_near_as_torchs(format, tokens):
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.Qwen3Config(**SIZES), dtype=torch.bfloat16
        ).eval()
    ids = torch.randint(0, 2048, (1, tokens), device="cuda")
    exact_model = with_weights(model, format, torch.float32)
    rounded = with_weights(model, format, torch.bfloat16)
    ours = humming.prepare(humming.convert(model, format))
    assert sum(isinstance(m, HummingLinear) for m in ours.modules()) == 14

    def logits(of):
        return of(input_ids=ids, use_cache=False).logits

    with torch.no_grad():
        exact = logits(exact_model).double()

        def error(found):
            return float((found.double() - exact).norm() / exact.norm())

        limit = 1.5 * error(logits(rounded))
        assert error(logits(ours)) <= limit
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = logits(ours)
        captured.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        assert error(captured) <= limit
        if tokens == 48:  # a compilation takes a while, and one serves all
            torch._dynamo.reset()
            ours.forward = torch.compile(ours.forward, dynamic=True)
            assert error(logits(ours)) <= limit
