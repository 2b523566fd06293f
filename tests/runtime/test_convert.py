"""convert: which layers become quantized, and which are left."""

from importlib import import_module

import pytest
import torch
from torch import nn

import humming
from humming import HummingLinear
from humming.errors import FormatError, LayoutError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 96)
        self.same = self.up
        self.router = nn.Linear(64, 4)
        self.down = nn.Linear(96, 64, bias=False)

    def forward(self, x):
        return self.down(self.up(x) + self.same(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 64)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(64, 10, bias=False)
        self.lm_head = nn.Linear(64, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


def test_plain_layers_are_replaced_and_the_rest_is_left():
    model = Model()
    assert humming.convert(model, "int4g128", skip=("lm_head", "*.router")) is model
    kinds = {name: type(module) for name, module in model.named_modules()}
    assert kinds["blocks.0.up"] is kinds["blocks.1.down"] is HummingLinear
    assert kinds["blocks.0.router"] is kinds["lm_head"] is kinds["head"] is nn.Linear
    assert model.blocks[0].same is model.blocks[0].up
    with torch.inference_mode():
        assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 10)
    humming.prepare(model, m=1)
    assert "heuristic (no tuned table)" in repr(model.blocks[0].up)


def test_the_converted_model_is_near_the_original():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 128), nn.Linear(128, 64))
    x = torch.randn(4, 256)
    expected = model(x).detach()
    got = humming.convert(model)(x)
    assert float((got - expected).norm() / expected.norm()) < 0.3


def test_a_layer_that_does_not_fit_is_named_and_kept(monkeypatch):
    def picky(_format, _n, k, *_):
        return "" if k % 32 == 0 else f"`k % 32 == 0` must hold, but got k={k}"

    monkeypatch.setattr(import_module("humming.convert"), "why_unserved", picky)
    model = nn.Sequential(nn.Linear(33, 64), nn.Linear(64, 8))
    with pytest.warns(RuntimeWarning, match=r"0 \(n=64, k=33: `k % 32 == 0` must hold"):
        humming.convert(model)
    assert [type(m) for m in model] == [nn.Linear, HummingLinear]


def test_a_subclass_is_left_to_its_owner():
    model = nn.MultiheadAttention(64, 2)
    with pytest.warns(RuntimeWarning, match="whose weight MultiheadAttention reads"):
        humming.convert(model)
    assert not any(isinstance(m, HummingLinear) for m in model.modules())


def test_a_bare_linear_comes_back_as_the_new_layer():
    assert isinstance(humming.convert(nn.Linear(64, 8)), HummingLinear)


def test_wrong_use_gets_a_sentence():
    with pytest.raises(FormatError, match="int4g12x"):
        humming.convert(Model(), "int4g12x")
    with pytest.raises(FormatError, match="format 'nvfp4-nvfp4'; use nvfp4"):
        humming.convert(Model(), "nvfp4-nvfp4")
    with pytest.raises(LayoutError, match="skip takes a list"):
        humming.convert(Model(), skip="lm_head")


def test_layers_whose_owner_reads_their_weight_stay():
    model = nn.TransformerEncoderLayer(64, 2, 128, batch_first=True).eval()
    x = torch.randn(1, 3, 64)
    expected = model(x)
    with pytest.warns(RuntimeWarning, match="nothing of TransformerEncoderLayer is replaced"):
        humming.convert(model)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda m: m.blocks[1].down.weight.data[3].fill_(float("nan")), "NaN or infinity"),
        (lambda m: m.blocks[1].down.double(), "fp32, bf16 or fp16"),
        (
            lambda m: setattr(m.blocks[1].down, "bias", nn.Parameter(torch.zeros(64).double())),
            "bias must be",
        ),
    ],
)
def test_a_weight_that_cannot_be_is_named_and_nothing_is_replaced(spoil, said):
    model = Model()
    spoil(model)
    before = dict(model.named_modules())
    with pytest.raises(LayoutError, match=rf"blocks\.1\.down: .*{said}"):
        humming.convert(model, "int8")
    assert dict(model.named_modules()) == before


def test_a_weight_that_stays_may_be_anything():
    model = Model()
    model.lm_head.weight.data[0] = float("inf")
    humming.convert(model, "int8")
    assert type(model.blocks[1].down) is HummingLinear


def test_a_skip_that_matches_nothing_gets_a_warning(recwarn):
    with pytest.warns(
        RuntimeWarning, match="'blocks.0.dwn' matches none; did you mean 'blocks.0.d"
    ):
        humming.convert(Model(), "int8", skip=["blocks.0.dwn"])
    with pytest.warns(RuntimeWarning, match="'foo' matches none; layers are called such as '1'"):
        humming.convert(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)), "int8", skip=["foo"])
    with pytest.warns(RuntimeWarning, match="'blocks' matches none"):  # a module around layers
        humming.convert(Model(), "int8", skip=["blocks"])
    recwarn.clear()
    humming.convert(Model(), "int8", skip=["router", "blocks.1.*", "embed", "lm_head"])
    humming.convert(nn.Sequential(nn.Linear(64, 64)), "int8")
    assert not recwarn.list


def test_a_layer_without_columns_is_refused_by_its_name():
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(0, 64))
    with pytest.raises(LayoutError, match="1: `n >= 1`, `k >= 1`"):
        humming.convert(model, "int4g128")
    assert type(model[0]) is nn.Linear
