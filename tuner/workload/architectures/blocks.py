"""Blocks that many architectures share: attention, gated and plain MLPs, experts, latent attention.
Models are in the tables beside this file.
"""

from __future__ import annotations

from tuner.workload.architectures.vocabulary import (
    Every,
    Kind,
    Leading,
    Linear,
    Listed,
    Members,
    Part,
    Width,
)

Linears = tuple[Linear, ...]


def split(formula: str) -> Width:
    return Width(formula, "split")


def heads(formula: str) -> Width:
    return Width(formula, "heads")


HIDDEN = Width("hidden_size")
QUERY = heads("num_attention_heads * head_dim")
KEY_VALUE = Width("num_key_value_heads * head_dim", "kv_heads")
MLP = split("intermediate_size")
EXPERT = split("moe_intermediate_size")
EXPERTS = Width("num_experts")
ONE = Width("1")


def single(
    module: str, out: Width, k: Width, kind: Kind = "dense", when: tuple[str, ...] = ()
) -> Linear:
    """A layer that is fused with nothing."""
    return Linear(module, (Part(module, out),), k, kind, when)


def attention(
    block: str = "self_attn",
    query: Width = QUERY,
    key: Width = KEY_VALUE,
    value: Width = KEY_VALUE,
    names: tuple[str, str, str, str] = ("q_proj", "k_proj", "v_proj", "o_proj"),
    out_k: Width | None = None,
    engine: str | None = None,
) -> Linears:
    """Attention with q, k and v fused by the engine; `engine` where it calls the block
    otherwise.
    """
    q, k, v, o = (f"{block}.{name}" for name in names)
    called = engine or block
    qkv = (Part(q, query), Part(k, key), Part(v, value))
    out = Linear(f"{called}.{names[3]}", (Part(o, HIDDEN),), out_k or query)
    return (Linear(f"{called}.qkv_proj", qkv, HIDDEN), out)


def fused_attention(qkv: str, out: str) -> Linears:
    """Attention with q, k and v fused in the checkpoint."""
    parts = tuple(Part(qkv, width) for width in (QUERY, KEY_VALUE, KEY_VALUE))
    return (Linear(qkv, parts, HIDDEN), single(out, HIDDEN, QUERY))


def gated(
    block: str,
    width: Width = MLP,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    when: tuple[str, ...] = (),
) -> Linears:
    """A gated MLP whose gate and up are fused by the engine."""
    gate, up, down = (f"{block}.{name}" for name in names)
    parts = (Part(gate, width), Part(up, width))
    return (
        Linear(f"{block}.gate_up_proj", parts, HIDDEN, when=when),
        single(down, HIDDEN, width, when=when),
    )


def fused_gated(gate_up: str, down: str, width: Width = MLP, when: tuple[str, ...] = ()) -> Linears:
    """A gated MLP whose gate and up are fused in the checkpoint."""
    return (
        Linear(gate_up, (Part(gate_up, width),) * 2, HIDDEN, when=when),
        single(down, HIDDEN, width, when=when),
    )


def plain(up: str, down: str, width: Width = MLP, when: tuple[str, ...] = ()) -> Linears:
    """An MLP without a gate."""
    return (single(up, width, HIDDEN, when=when), single(down, HIDDEN, width, when=when))


def experts(
    block: str,
    names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj"),
    router: str = "gate",
    width: Width = EXPERT,
    latent: Width = HIDDEN,
) -> Linears:
    """A router and its experts; the last of `names` is the way back, the others are fused to w13.
    `latent` is the width in which experts work.
    """
    inside = f"{block}.experts" if block else "experts"
    at = f"{block}.{router}" if block else router
    w13 = tuple(Part(f"{inside}.{{expert}}.{name}", width) for name in names[:-1])
    w2 = (Part(f"{inside}.{{expert}}.{names[-1]}", latent),)
    return (
        single(at, EXPERTS, HIDDEN, "router"),
        Linear(f"{inside}.w13", w13, latent, "moe"),
        Linear(f"{inside}.w2", w2, width, "moe"),
    )


def after_router(moe: Linears, between: Linears) -> Linears:
    """`between` put where shared experts stand: behind the router, before the experts."""
    return (moe[0], *between, *moe[1:])


GQA = attention()
DENSE = gated("mlp")
MOE = experts("mlp")

SHARED = split("n_shared_experts * moe_intermediate_size")
DEEPSEEK_MOE = after_router(MOE, gated("mlp.shared_experts", SHARED, when=("n_shared_experts",)))
QWEN_MOE = after_router(
    MOE,
    (
        single("mlp.shared_expert_gate", ONE, HIDDEN, "router"),
        *gated("mlp.shared_expert", split("shared_expert_intermediate_size")),
    ),
)

Q_RANK, KV_RANK = Width("q_lora_rank"), Width("kv_lora_rank")
KV_A = Width("kv_lora_rank + qk_rope_head_dim")
Q_B = heads("num_attention_heads * qk_head_dim")
KV_B = heads("num_attention_heads * qk_nope_head_dim + num_attention_heads * v_head_dim")
VALUES = heads("num_attention_heads * v_head_dim")
MLA_TAIL = (
    single("self_attn.q_b_proj", Q_B, Q_RANK, when=("q_lora_rank",)),
    single("self_attn.q_proj", Q_B, HIDDEN, when=("!q_lora_rank",)),
    single("self_attn.kv_b_proj", KV_B, KV_RANK),
    single("self_attn.o_proj", HIDDEN, VALUES),
)
MLA = (
    Linear(
        "self_attn.fused_qkv_a_proj",
        (Part("self_attn.q_a_proj", Q_RANK), Part("self_attn.kv_a_proj_with_mqa", KV_A)),
        HIDDEN,
        when=("q_lora_rank",),
    ),
    single("self_attn.kv_a_proj_with_mqa", KV_A, HIDDEN, when=("!q_lora_rank",)),
    *MLA_TAIL,
)
"""Latent attention as engines run it: the two ways down are one layer that every rank holds
whole.
"""

INDEXER = (
    single("self_attn.indexer.wq_b", Width("index_n_heads * index_head_dim"), Q_RANK),
    Linear(
        "self_attn.indexer.wk_weights_proj",
        (
            Part("self_attn.indexer.wk", Width("index_head_dim")),
            Part("self_attn.indexer.weights_proj", Width("index_n_heads")),
        ),
        HIDDEN,
        "plain",
    ),
)

DENSE_OR_SPARSE = {
    "dense": "dense",
    "sparse": "sparse",
    "moe": "sparse",
    "0": "dense",
    "1": "sparse",
}
BY_STEP = Members("mlp_only_layers", "dense", Every("decoder_sparse_step", 1, "sparse", "dense"))
AFTER_DENSE = Listed(
    "mlp_layer_types",
    DENSE_OR_SPARSE,
    Leading(
        "first_k_dense_replace", "dense", Every("moe_layer_freq", 1, "sparse", "dense", offset=0)
    ),
)
MLA_SWITCHES = {"qk_head_dim": "qk_nope_head_dim + qk_rope_head_dim"}
