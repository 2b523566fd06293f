"""Layers whose float weight code of their model reads stay as they are; one that was missed says
its name."""

import pytest
import torch
from torch import nn

import humming
from humming import HummingLinear
from humming.weight_reads import read_layers


class Settings:
    ranks = 1


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Settings()
        self.exact = False
        for name in ("called", "read", "deep", "trained", "ranked", "chosen", "reset", "inner"):
            self.add_module(name, nn.Linear(64, 64))
        self.parts = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.read.weight.data *= 1  # building a model is no call of it

    def reset_parameters(self):
        nn.init.zeros_(self.reset.weight)

    @property
    def width(self):
        return self.deep.weight.shape[0]

    def forward(self, x):
        if self.training and x.ndim == 2:
            x = x @ self.trained.weight
        if self.config.ranks > 1 and self.exact:
            x = x @ self.ranked.weight
        elif not self.exact:
            x = x @ self.chosen.weight
        x = x.to(self.read.weight.dtype) + self.parts[0].weight[0]
        return self.called(x)


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Reader()

    def forward(self, x):
        return self.block(x) + (lambda: self.block.inner.weight[0])()


def test_what_calls_read_is_found_and_by_whom():
    model = Outer()
    names = {id(module): name for name, module in model.named_modules()}
    found = {names[layer]: reader for layer, reader in read_layers(model).items()}
    assert found == {
        "block.read": "Reader",
        "block.parts.0": "Reader",
        "block.chosen": "Reader",
        "block.deep": "Reader",
        "block.inner": "Outer",
    }
    model.block.config.ranks, model.block.exact = 2, True
    found = {names[layer] for layer in read_layers(model)}
    assert "block.ranked" in found and "block.chosen" not in found


def test_such_layers_stay_and_the_model_runs():
    model, x = Outer(), torch.randn(3, 64)
    humming.convert(model, "int8")
    with torch.inference_mode():
        assert model.eval()(x).shape == (3, 64)
    assert type(model.block.read) is type(model.block.parts[0]) is nn.Linear
    assert type(model.block.called) is type(model.block.trained) is HummingLinear


class Hidden(nn.Module):
    """Reads in a way that nobody sees from outside."""

    def __init__(self):
        super().__init__()
        self.wo = nn.Linear(64, 64)

    def forward(self, x):
        return x @ next(iter(self._modules.values())).weight.T


def test_a_layer_whose_weight_is_read_after_all_says_its_name():
    model = humming.convert(nn.ModuleDict({"block": Hidden()}), "int8")
    with pytest.raises(
        AttributeError,
        match=r"^block\.wo is a HummingLinear and keeps .*skip=\['block\.wo', \.\.\.",
    ):
        model["block"](torch.zeros(1, 64))
    with pytest.raises(AttributeError, match=r"^a HummingLinear keeps no float weight"):
        HummingLinear(64, 64).weight  # noqa: B018


def tiny(name):
    transformers = pytest.importorskip("transformers", minversion="5")
    if name in ("T5", "UMT5"):
        sizes = {"d_model": 64, "d_kv": 32, "d_ff": 128, "num_layers": 1, "num_heads": 2}
        config = getattr(transformers, f"{name}Config")(vocab_size=64, **sizes)
        model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
        ids = torch.tensor([[1, 2, 3]])
        return model, {"input_ids": ids, "decoder_input_ids": ids}, "wo"
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    if name == "Jamba":
        sizes |= {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1}
        sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}
    config = getattr(transformers, f"{name}Config")(pad_token_id=0, **sizes)
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    return model, {"input_ids": torch.tensor([[1, 2, 3]])}, "dt_proj"


@pytest.mark.parametrize("name", ["T5", "UMT5", "Mamba", "FalconMamba", "Jamba"])
def test_models_of_transformers_that_read_weights_run_converted(name):
    model, given, read = tiny(name)
    humming.convert(model.eval(), "int8g32")
    with torch.inference_mode():
        assert bool(model(**given).logits.isfinite().all())
    kinds = {}
    for place, module in model.named_modules():
        kinds.setdefault(place.rpartition(".")[2], set()).add(type(module))
    assert kinds[read] == {nn.Linear}
    assert kinds[{"wo": "q"}.get(read, "out_proj")] == {HummingLinear}
