"""Mixtures of experts called as they must not be, or with next to nothing: a sentence, or the right
answer."""

import pytest
import torch
from torch import nn

import humming
from humming.errors import LayoutError
from humming.moe.router import RouterRule

EXPERTS, H, TOP_K = 6, 64, 2


def experts_of(**options) -> humming.HummingExperts:
    generator = torch.Generator().manual_seed(3)
    up = torch.randn(EXPERTS, 2 * 32, H, generator=generator)
    down = torch.randn(EXPERTS, H, 32, generator=generator)
    return humming.HummingExperts.from_float(up, down, "int4g32", top_k=TOP_K, **options)


def block_of(rule: RouterRule | None = None, **parts) -> humming.HummingMoE:
    generator = torch.Generator().manual_seed(4)
    rule = rule or RouterRule(TOP_K)
    router = parts.pop("router", torch.randn(EXPERTS, H, generator=generator))
    return humming.HummingMoE(router, experts_of(scales_input=rule.scales_input), rule, **parts)


def test_a_gradient_is_refused_and_serving_is_not():
    block, x = block_of(), torch.randn(3, H)
    embedded = nn.Embedding(9, H)(torch.tensor([1, 2, 3]))
    for asked in (x.clone().requires_grad_(), embedded):
        with pytest.raises(LayoutError, match="no backward"):
            block(asked)
        with pytest.raises(LayoutError, match="no backward"):
            block.experts(asked, *block.choose(x))
        with torch.no_grad():
            assert torch.equal(block(asked), block(asked.detach()))
    ids, weights = block.choose(x)
    with pytest.raises(LayoutError, match="no backward"):
        block.experts(x, ids, weights.requires_grad_())
    with torch.inference_mode():
        assert block(x).shape == x.shape


@pytest.mark.parametrize("scales_input", [False, True])
def test_no_tokens_give_no_rows(scales_input):
    block, none = block_of(RouterRule(TOP_K, scales_input=scales_input)), torch.randn(0, H)
    compiled = torch.compile(block, backend="eager", fullgraph=True)
    with torch.inference_mode():
        assert block(none).shape == (0, H)
        assert block(none.view(2, 0, H)).shape == (2, 0, H)
        assert compiled(none).shape == (0, H)
