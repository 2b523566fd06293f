"""Layers of other classes than nn.Linear: those that compute the same are converted, and a warning
tells of what stays float."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

import humming
from humming import HummingLinear
from humming.float_layers import as_linear


class Spelled(nn.Linear):
    """As nn.Linear, in other words."""

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


class Turned(nn.Module):
    """As transformers' Conv1D."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x):
        out = torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight)
        return out.view(*x.shape[:-1], self.nf)


class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 2


class Marked(nn.Linear):
    """Told apart by its class."""


class Extra(Spelled):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.more = nn.Parameter(torch.zeros(sizes[1]))


class Several(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("k", "n"), [(64, 96), (64, 64)])
def test_what_computes_as_a_linear_layer_is_one(k, n, bias):
    layer, x = Spelled(k, n, bias), torch.randn(2, 3, k)
    linear = as_linear(layer)
    assert type(linear) is nn.Linear and linear.weight is layer.weight
    assert torch.allclose(linear(x), layer(x), atol=1e-5)
    turned = Turned(n, k)
    linear = as_linear(turned)
    assert (linear.in_features, linear.out_features) == (k, n)
    assert torch.allclose(linear(x), turned(x), atol=1e-4)
    assert as_linear(Turned(n, k).to("meta")).weight.is_meta
    assert as_linear(turned.bfloat16()).weight.dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [Scaled, Marked, Extra, Several])
def test_what_computes_otherwise_or_is_told_apart_is_none(kind):
    assert as_linear(kind(64, 96)) is None


def test_they_are_converted():
    model, x = nn.Sequential(Spelled(64, 96), Turned(32, 96)).eval(), torch.randn(2, 64)
    wanted = [
        humming.quantize(w, "int8").dequantize() for w in (model[0].weight, model[1].weight.T)
    ]
    middle = functional.linear(x.double(), wanted[0], model[0].bias.double())
    exact = functional.linear(middle, wanted[1], model[1].bias.double())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        humming.convert(model, "int8")
    assert [type(layer) for layer in model] == [HummingLinear, HummingLinear]
    assert not model[1].training
    assert torch.allclose(model(x).double(), exact, rtol=1e-4, atol=1e-4)


class Stacked(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(2, 64, 128))
        self.down_proj = nn.Parameter(torch.randn(2, 64, 64))

    def forward(self, x):
        return x


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.up = nn.Linear(64, 64)
        self.scaled = nn.ModuleList([Scaled(64, 64), Scaled(64, 64)])
        self.small = nn.Parameter(torch.randn(64, 16))
        self.experts = Stacked()


def test_kinds_that_stay_float_are_told_in_one_sentence():
    with pytest.warns(RuntimeWarning) as told:
        humming.convert(Block(), "int8")
    (said,) = [str(one.message) for one in told]
    assert said.startswith("convert replaces nn.Linear, what computes as that does, and experts")
    assert "2 Scaled (such as scaled.0), 1 Stacked (such as experts)" in said
    assert "Embedding" not in said and "Block" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        humming.convert(Block(), "int8", skip=["scaled.*", "experts"])


def test_a_model_of_which_nothing_is_replaced_is_told_of():
    with pytest.warns(RuntimeWarning, match=r"nothing of Sequential is replaced; .*2 Scaled"):
        humming.convert(nn.Sequential(Scaled(64, 64), Scaled(64, 64)), "int8")
    with pytest.warns(RuntimeWarning, match="nothing of Embedding is replaced; convert replaces"):
        humming.convert(nn.Embedding(10, 64), "int8")
    model = humming.convert(nn.Sequential(nn.Linear(64, 64)), "int8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        humming.convert(model, "int8")  # again


@pytest.mark.parametrize("name", ["GPT2", "Falcon", "Llama4"])
def test_models_of_transformers_with_classes_of_their_own(name):
    transformers = pytest.importorskip("transformers", minversion="5")
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 64}
    if name == "Llama4":
        more = {"intermediate_size": 128, "num_key_value_heads": 2, "head_dim": 16}
        more |= {"num_local_experts": 2, "interleave_moe_layer_step": 1}
        model = transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**sizes, **more))
        with pytest.warns(RuntimeWarning, match="stay floats: 1 Llama4TextExperts"):
            humming.convert(model, "int8g32")
        return
    if name == "GPT2":
        config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=64)
        model = transformers.GPT2LMHeadModel(config).eval()
    else:
        model = transformers.FalconForCausalLM(transformers.FalconConfig(**sizes)).eval()
    ids = torch.tensor([[1, 2, 3]])
    with torch.inference_mode():
        wanted = model(ids).logits
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            humming.convert(model, "int8g32")
        found = model(ids).logits
    assert sum(isinstance(module, HummingLinear) for module in model.modules()) == 4
    assert float((found - wanted).norm()) < 0.05 * float(wanted.norm())
