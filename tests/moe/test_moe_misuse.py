"""Mixtures of experts called as they must not be, or with next to nothing: a sentence, or the right
answer."""

import pytest
import torch
from moe_cases import experts
from torch import nn

import humming
from humming.errors import LayoutError, UsageError
from humming.moe.router import RouterRule, route, row_logits

EXPERTS, H, TOP_K = 6, 64, 2


def experts_of(**options) -> humming.HummingExperts:
    generator = torch.Generator().manual_seed(3)
    up = torch.randn(EXPERTS, 2 * 32, H, generator=generator)
    down = torch.randn(EXPERTS, H, 32, generator=generator)
    return humming.HummingExperts.from_float(up, down, "int4g32", **{"top_k": TOP_K, **options})


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


def test_ids_past_32_bits_have_no_expert():
    of = experts("int4g128", 5, 40, 72)
    ids = torch.tensor([[2**32 + 1, 1], [-(2**32) + 2, 2], [2**63 - 1, 0], [-(2**63), 4]])
    for first in (0, 1):
        out = humming.moe_gemm(torch.randn(4, 72), of.packed, ids=ids, first_expert=first)
        assert bool((out[:, 0] == 0).all())
        assert bool((out[1, 1] != 0).any())


def test_offsets_and_counts_past_32_bits_do_not_wrap():
    of, x = experts("int4g128", 5, 40, 72), torch.randn(5, 3, 72)
    most, full = torch.full((5,), 2**32), torch.full((5,), 3)
    out = humming.moe_gemm(x, of.packed, counts=most)
    assert torch.equal(out, humming.moe_gemm(x, of.packed, counts=full))
    offsets = torch.tensor([0, *(5 * [2**32 + 2])])
    ends = torch.tensor([0, *(5 * [15])])
    flat = x.view(15, 72)
    out = humming.moe_gemm(flat, of.packed, offsets=offsets)
    assert torch.equal(out, humming.moe_gemm(flat, of.packed, offsets=ends))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": [1.0]}, "x must be a tensor of floats, but got list"),
        ({"weight": torch.zeros(5, 40, 72)}, r"got a tensor \[5, 40, 72\] of float32; quantize"),
        ({"weight": [torch.zeros(40, 72)]}, "got list with Tensor; quantize"),
        ({"weight": []}, "got an empty list; quantize"),
        ({"weight": None}, "got NoneType; quantize"),
        ({"ids": [[0, 1]]}, "ids must be .* but got list"),
        ({"ids": torch.zeros(6, 0, dtype=torch.int32)}, r"ids must be .* got int32 \[6, 0\]"),
        ({"ids": None, "counts": torch.ones(4, dtype=torch.int32)}, "counts must be 5 numbers"),
        ({"ids": None, "offsets": torch.ones(4, dtype=torch.int32)}, "offsets must be 6 numbers"),
        ({"ids": None, "counts": [1]}, "counts must be .* but got list"),
        ({"bias": [1.0]}, r"bias must be a tensor \[experts, n\], but got list"),
        ({"x": torch.randn(6, 72).to_sparse()}, "x must be a dense tensor .* got a sparse_coo one"),
        ({"top_k": -3}, "`top_k >= 1` must hold .* but got -3"),
        ({"first_expert": -1}, "`0 <= first_expert"),
    ],
)
def test_what_moe_gemm_does_not_take_is_said_in_a_sentence(change, says):
    call = {"x": torch.randn(6, 72), "weight": experts("int4g128", 5, 40, 72).packed}
    call |= {"ids": torch.zeros(6, 2, dtype=torch.int32), **change}
    if call.get("counts") is not None:
        call["x"] = torch.randn(5, 3, 72)
    with pytest.raises(LayoutError, match=says):
        humming.moe_gemm(call.pop("x"), call.pop("weight"), **call)


GROUPED = RouterRule(2, groups=3)
ROUTER, UP = torch.ones(EXPERTS, H), torch.ones(EXPERTS, 2 * 32, H)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: RouterRule(2, group_score="foo"), "group_score must be one of top2, max, but"),
        (lambda: block_of(RouterRule(9)), "`top_k <= 6` must hold .* got top_k=9"),
        (lambda: block_of(RouterRule(3, groups=3)), "`top_k <= 2` must hold .* got top_k=3"),
        (lambda: block_of(RouterRule(1, groups=4, top_groups=2)), "`experts % groups == 0`"),
        (lambda: block_of(router=torch.randn(7, H)), "router must have a row .* got 7 rows"),
        (lambda: block_of(router=torch.randn(5, H)), "router must have a row .* got 5 rows"),
        (lambda: block_of(router=torch.randn(EXPERTS, 3)), r"router must be \[experts, 64\]"),
        (lambda: block_of(correction=torch.zeros(5)), r"correction must be \[6\], but got \[5\]"),
        (lambda: block_of(router_bias=torch.zeros(5)), r"router_bias must be \[6\]"),
        (lambda: block_of(shared_gate=torch.zeros(H)), r"shared_gate must be \[1, 64\]"),
        (lambda: route(torch.randn(2, 6), RouterRule(9)), "`top_k <= 6`"),
        (lambda: route(torch.randn(2, 6), GROUPED, torch.zeros(1)), "correction must be"),
        (lambda: block_of()(torch.randn(3, 63)), r"hidden_states must be \[.., 64\]"),
        (lambda: block_of()([1.0]), "hidden_states must be a tensor"),
        (
            lambda: block_of()(torch.ones(3, H, dtype=torch.bool)),
            "hidden_states must be fp32.* bool",
        ),
        (lambda: block_of(router=None), "router must be a tensor .* got NoneType"),
        (lambda: block_of(correction=[0.0] * 6), "correction must be a tensor .* got list"),
        (lambda: block_of(router_bias=0.0), "router_bias must be a tensor .* got float"),
        (lambda: block_of(shared_gate=[0.0]), "shared_gate must be a tensor .* got list"),
        (lambda: block_of(shared=3), "shared must be of the type Module, but got int"),
        (lambda: humming.HummingMoE(ROUTER, None, GROUPED), "experts must be of the type Humming"),
        (lambda: humming.HummingMoE(ROUTER, experts_of(), 2), "rule must be of the type RouterR"),
        (lambda: humming.HummingExperts.from_float([1.0], UP), "up must be a tensor .* got list"),
        (lambda: humming.HummingExperts.from_float(UP, None), "down must be a tensor .* NoneType"),
        (lambda: experts_of(up_bias=[0.0]), "bias must be a tensor .* got list"),
        (lambda: block_of(RouterRule(3)), "must agree about top_k, but got 3 and 2"),
        (lambda: RouterRule(2.5), "`top_k >= 1` must hold as a whole number, but got 2.5"),
    ],
)
def test_routers_and_rules_that_do_not_fit_are_refused(build, says):
    with pytest.raises(LayoutError, match=says):
        build()


@pytest.mark.parametrize("top_k", [0, -1, 99, 2.5, "2", True])
def test_a_top_k_that_no_token_can_have_is_refused(top_k):
    with pytest.raises(LayoutError, match=r"`top_k .* must hold .* but got"):
        experts_of(top_k=top_k)


def test_a_rank_has_fewer_experts_than_a_token_and_experts_need_not_say_how_many_it_has():
    assert experts_of(top_k=8, first_expert=0).up.spec.top_k == 8
    generator = torch.Generator().manual_seed(4)
    router, untold = torch.randn(EXPERTS, H, generator=generator), experts_of(top_k=None)
    out = humming.HummingMoE(router, untold, RouterRule(3))(torch.randn(5, H))
    assert out.shape == (5, H) and untold.up.spec.top_k == 3


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("foo", "must be one of silu, gelu, .* but got 'foo'"),
        ("silu_clampd", "got 'silu_clampd'; did you mean 'silu_clamped'?"),
        (3, "must be one of silu, .* but got 3"),
        (["silu"], "must be one of silu, .* but got"),
    ],
)
def test_an_activation_of_no_known_name_is_refused(name, says):
    with pytest.raises(LayoutError, match=says):
        experts_of(activation=name)


def test_an_activation_may_be_given_by_its_name():
    assert experts_of(activation="gelu_pytorch_tanh").activation.name == "gelu_tanh"


def test_ids_and_weights_that_do_not_fit_are_refused():
    module, x = experts_of(), torch.randn(10, H)
    ids, weights = torch.zeros(10, 2, dtype=torch.int32), torch.ones(10, 2)
    wrong = (
        (x, ids, torch.ones(10, 3), r"got \[10, 2\] and \[10, 3\]"),
        (x, ids[:9], weights[:9], r"must both be \[10, top_k\]"),
        (x, ids, None, "weights must be a tensor .* got NoneType"),
        (x, ids.tolist(), weights, "ids must be a tensor .* got list"),
        (x[:, 1:], ids, weights, r"must be \[.., 64\], but got \[10, 63\]"),
        (x.view(2, 5, H), ids, weights, r"must be \[m, h\]"),
    )
    for *call, says in wrong:
        with pytest.raises(LayoutError, match=says):
            module(*call)


def test_a_record_that_cannot_be_written_is_refused_on_entry(tmp_path):
    block = block_of()
    for path in (tmp_path / "missing" / "routing.json", tmp_path):
        with (
            pytest.raises(UsageError, match="path must be a file in a folder that exists"),
            humming.record_routing(block, path),
        ):
            pytest.fail("entered")


def test_a_record_of_nothing_is_not_written(tmp_path):
    path = tmp_path / "routing.json"
    with (
        pytest.warns(RuntimeWarning, match=r"counted no token, so that '.*' was not written: run"),
        humming.record_routing(block_of(), path),
    ):
        pass
    assert not path.exists()


def test_a_record_of_nothing_warns_and_one_of_a_model_compiled_inside_does_not():
    block, x = block_of(), torch.randn(5, H)
    compiled = torch.compile(block, backend="eager")
    with torch.inference_mode():
        compiled(x)
        with (
            pytest.warns(RuntimeWarning, match=r"counted no token: .* compile it inside"),
            humming.record_routing(block),
        ):
            compiled(x)
        torch.compiler.reset()
        with humming.record_routing(block) as record:
            compiled(x)
    assert sum(record.counts["experts"]) == 5 * TOP_K


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_invariant_router_gives_a_row_the_same_bits_whatever_m(dtype):
    block = block_of(router_bias=torch.randn(EXPERTS))
    block.router = torch.randn(EXPERTS, H).to(dtype)
    x = torch.randn(300, H).to(dtype)
    usual = block.choose(x)
    humming.set_batch_invariant(True)
    try:
        with torch.inference_mode():
            ids, weights = block.choose(x)
            out = block(x)
            for m in (1, 17):
                assert torch.equal(block.choose(x[-m:])[1], weights[-m:])
                assert torch.equal(block(x[-m:]), out[-m:])
    finally:
        humming.set_batch_invariant(False)
    if dtype == torch.float32:
        assert torch.equal(ids, usual[0])
        torch.testing.assert_close(weights, usual[1])


def test_row_logits_are_the_products_of_any_width(monkeypatch):
    monkeypatch.setattr("humming.moe.router._MOST_PRODUCTS", 1000)
    for h in (1, 3, 64, 100):
        x, router = torch.randn(41, h), torch.randn(5, h)
        torch.testing.assert_close(row_logits(x, router, None), x @ router.T)
