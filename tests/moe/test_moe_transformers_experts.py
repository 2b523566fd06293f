"""Stacked experts of transformers as HummingExperts: what each class computes, or it stays as it
is."""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import humming
from humming.errors import LayoutError
from humming.moe.attach import experts_of, is_experts, known_activation
from humming.moe.experts import HummingExperts

transformers = pytest.importorskip("transformers", minversion="5.0")

MODELS = Path(transformers.__file__).parent / "models"
H, COUNT, TOP_K = 32, 4, 2
OTHERS = ("MuseSparkExperts", "Inkling2Experts", "Inkling2LoopExperts")
"""A norm follows their second projection, or their activation is none of ours."""


class AnyConfig:
    """Whatever a class of experts asks of its config."""

    _experts_implementation = "eager"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        for part, value in (
            ("act", "silu"),
            ("limit", 0.6),
            ("alpha", 1.3),
            ("eps", 1e-5),
            ("dtype", torch.float32),
            ("bias", False),
            ("top_k", TOP_K),
            ("per_tok", TOP_K),
            ("expert", COUNT),
        ):
            if part in name:
                return value
        return H


def classes(folders: Any) -> list[type[nn.Module]]:
    found = []
    for folder in folders:
        for path in (MODELS / folder).glob("modeling_*.py"):
            names = re.findall(
                r"@use_experts_implementation[^\n]*\nclass (\w+)", path.read_text("utf-8")
            )
            if names:
                module = importlib.import_module(f"transformers.models.{folder}.{path.stem}")
                found += [getattr(module, name) for name in names]
    return found


def made(of: type[nn.Module]) -> nn.Module:
    try:
        module = of(AnyConfig())
    except TypeError:  # some are told the width
        module = of(AnyConfig(), intermediate_size=H)  # type: ignore[call-arg]
    draw = torch.Generator().manual_seed(1)
    for parameter in module.parameters():  # int4 with groups of 16 holds them exactly
        codes = torch.randint(-7, 8, parameter.shape, generator=draw).float()
        if codes.ndim == 3:
            turned = getattr(module, "is_transposed", False)
            (codes.movedim(1, 2) if turned else codes)[..., ::16] = 7
        parameter.data = codes / 16
    return module.eval()


def check(of: type[nn.Module]) -> None:
    module = made(of)
    if of.__name__ in OTHERS:
        assert not is_experts(module)
        return
    ours = experts_of(module, "int4g16", top_k=TOP_K)
    draw = torch.Generator().manual_seed(2)
    x, weights = torch.randn(9, H, generator=draw), torch.rand(9, TOP_K, generator=draw)
    ids = torch.rand(9, COUNT, generator=draw).topk(TOP_K, dim=1).indices
    with torch.inference_mode():
        wanted, out = module(x, ids, weights), ours(x, ids, weights)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    assert float((out - wanted).norm()) < 1e-4 * float(wanted.norm()), of.__name__


@pytest.mark.parametrize("folder", ["qwen3_moe", "gpt_oss", "nemotron_h"])
def test_what_they_compute_is_what_ours_compute(folder):
    for of in classes([folder]):
        check(of)


@pytest.mark.slow
def test_every_class_of_transformers_is_right_or_stays_as_it_is():
    found = classes(sorted(path.name for path in MODELS.iterdir() if path.is_dir()))
    assert len(found) >= 10
    for of in found:
        check(of)


class Clamped(nn.Module):
    """As DeepSeek V4 has it."""

    limit = 0.5

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.randn(COUNT, 2 * H, H))
        self.down_proj = nn.Parameter(torch.randn(COUNT, H, H))

    def _apply_gate(self, projected: torch.Tensor) -> torch.Tensor:
        gate, up = projected.chunk(2, dim=-1)
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return nn.functional.silu(gate) * up

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        raise NotImplementedError


class Strange(Clamped):
    """An activation that nobody has."""

    def _apply_gate(self, projected: torch.Tensor) -> torch.Tensor:
        gate, up = projected.chunk(2, dim=-1)
        return gate.sin() * up


class InTurn(Clamped):
    """Rows of gates and ups in turn, which the class does not tell."""

    def _apply_gate(self, projected: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(projected[..., ::2]) * projected[..., 1::2]


def test_an_activation_is_known_by_what_it_computes():
    found = known_activation(Clamped())
    assert found is not None
    assert (found[0].name, found[0].limit, found[1]) == ("silu_clamped", 0.5, False)
    found = known_activation(InTurn())
    assert found is not None
    assert (found[0].name, found[1]) == ("gelu", True)
    assert known_activation(Strange()) is None
    with pytest.raises(LayoutError, match="Strange must activate"):
        experts_of(Strange())


def test_experts_that_stay_as_they_are_are_named():
    model = nn.ModuleDict({"a": Clamped(), "b": Strange()})
    with pytest.warns(RuntimeWarning, match=r"stay as they are: b \(Strange\)"):
        humming.convert(model, "int8g16")
    assert isinstance(model["a"], HummingExperts)
    assert isinstance(model["b"], Strange)


def test_experts_that_are_not_finite_are_named_and_nothing_is_replaced() -> None:
    model = nn.ModuleDict({"a": Clamped(), "b": Clamped(), "c": nn.Linear(H, H)})
    before = dict(model.named_modules())
    model["b"].down_proj.data[2, 3, 4] = float("nan")
    with pytest.raises(LayoutError, match=r"b\.down_proj\[2\]: .*NaN or infinity"):
        humming.convert(model, "int8g16")
    model["b"].down_proj.data[2, 3, 4] = 0.0
    model["c"].weight.data[0] = float("inf")
    with pytest.raises(LayoutError, match=r"c: .*NaN or infinity"):
        humming.convert(model, "int8g16")
    assert dict(model.named_modules()) == before


def test_experts_may_be_skipped_by_name() -> None:
    model = nn.ModuleDict({"a": Clamped(), "b": Strange()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        humming.convert(model, "int8g16", skip=["b"])
    assert isinstance(model["a"], HummingExperts)
