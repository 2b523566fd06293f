"""The table of architectures, part three: decoders that mix attention with linear attention, state
spaces or compressed keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.workload.architectures.blocks import (
    BY_STEP,
    DENSE,
    EXPERT,
    GQA,
    HIDDEN,
    KEY_VALUE,
    MLP,
    QUERY,
    QWEN_MOE,
    Linears,
    after_router,
    attention,
    experts,
    gated,
    heads,
    plain,
    single,
    split,
)
from tuner.workload.architectures.experts import GRANITE_MOE, GRANITE_SHARED
from tuner.workload.architectures.vocabulary import (
    Architecture,
    Every,
    If,
    Keys,
    Leading,
    Linear,
    Listed,
    Members,
    Part,
    Width,
)

GDN_KEYS = heads("linear_num_key_heads * linear_key_head_dim")
GDN_VALUES = heads("linear_num_value_heads * linear_value_head_dim")
GDN_HEADS = heads("linear_num_value_heads")


def _gdn(qkv: str, z: str, b: str, a: str) -> Linears:
    """Gated delta networks, by the names of their parts in the checkpoint."""
    at = "linear_attn"
    return (
        Linear(
            f"{at}.in_proj_qkvz",
            (
                Part(f"{at}.{qkv}", GDN_KEYS),
                Part(f"{at}.{qkv}", GDN_KEYS),
                Part(f"{at}.{qkv}", GDN_VALUES),
                Part(f"{at}.{z}", GDN_VALUES),
            ),
            HIDDEN,
        ),
        Linear(
            f"{at}.in_proj_ba",
            (Part(f"{at}.{b}", GDN_HEADS), Part(f"{at}.{a}", GDN_HEADS)),
            HIDDEN,
        ),
        single(f"{at}.out_proj", HIDDEN, GDN_VALUES),
    )


GDN = _gdn("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
FUSED_GDN = _gdn("in_proj_qkvz", "in_proj_qkvz", "in_proj_ba", "in_proj_ba")
GATED_ATTENTION = (
    Linear(
        "self_attn.qkv_proj",
        (
            Part("self_attn.q_proj", QUERY),
            Part("self_attn.q_proj", QUERY, when=("attn_output_gate",)),
            Part("self_attn.k_proj", KEY_VALUE),
            Part("self_attn.v_proj", KEY_VALUE),
        ),
        HIDDEN,
    ),
    GQA[1],
)
"""The output gate comes out of q_proj, which is twice as wide for it."""

QWEN_LAYERS = Listed(
    "layer_types",
    {"linear_attention": "linear", "full_attention": "attention"},
    Every("full_attention_interval", 4, "attention", "linear"),
)
QWEN_SWITCHES: dict[str, int | str] = {"attn_output_gate": 1, "head_dim": 256}

MAMBA_WIDTH = heads("mamba_heads * mamba_head_dim")
MAMBA_GROUPS = Width("mamba_groups * mamba_state", "kv_heads")


def _mamba(block: str) -> Linears:
    """Mamba 2: z and x, B and C of each group, one dt for each head."""
    inside = (MAMBA_WIDTH, MAMBA_WIDTH, MAMBA_GROUPS, MAMBA_GROUPS, heads("mamba_heads"))
    parts = tuple(Part(f"{block}.in_proj", width) for width in inside)
    return (
        Linear(f"{block}.in_proj", parts, HIDDEN),
        single(f"{block}.out_proj", HIDDEN, MAMBA_WIDTH),
    )


MAMBA_KEYS: Keys = {
    "mamba_heads": ("mamba_num_heads", "mamba_n_heads"),
    "mamba_head_dim": ("mamba_head_dim", "mamba_d_head"),
    "mamba_groups": ("n_groups", "mamba_n_groups"),
    "mamba_state": ("ssm_state_size", "mamba_d_state"),
}
MAMBA_LAYERS = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
}

NEMOTRON_SHARED = split("n_shared_experts * moe_shared_expert_intermediate_size")
NEMOTRON_BLOCKS = {
    "mamba": _mamba("mixer"),
    "attention": attention("mixer"),
    "dense": plain("mixer.up_proj", "mixer.down_proj"),
    "sparse": after_router(
        experts("mixer", ("up_proj", "down_proj"), latent=Width("expert_hidden_size")),
        (
            *plain(
                "mixer.shared_experts.up_proj",
                "mixer.shared_experts.down_proj",
                NEMOTRON_SHARED,
                when=("n_shared_experts",),
            ),
            single(
                "mixer.fc1_latent_proj", Width("moe_latent_size"), HIDDEN, when=("moe_latent_size",)
            ),
            single(
                "mixer.fc2_latent_proj", HIDDEN, Width("moe_latent_size"), when=("moe_latent_size",)
            ),
        ),
    ),
}
NEMOTRON_LETTERS = {"M": "mamba", "*": "attention", "-": "dense", "E": "sparse"}
NEMOTRON_WORDS = {
    **MAMBA_LAYERS,
    "mlp": "dense",
    "dense": "dense",
    "moe": "sparse",
    "sparse": "sparse",
}


def adjusted_inner(values: Mapping[str, Any]) -> dict[str, Any]:
    """LFM2's config with the MLP's width that its class makes of `intermediate_size`: two thirds,
    rounded up to a multiple.
    """
    inner = values.get("intermediate_size", values.get("block_ff_dim"))
    multiple = values.get("block_multiple_of", 256)
    given = (inner, multiple, values.get("block_ffn_dim_multiplier", 1.0))
    adjusts = values.get("block_auto_adjust_ff_dim", values.get("model_type") == "lfm2")
    if adjusts is not True or not all(_is_number(value) for value in given):
        return dict(values)
    width = int(given[2] * int(2 * given[0] / 3))
    return {**values, "intermediate_size": -(-width // multiple) * multiple}


def _is_number(value: Any) -> bool:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return known and 0 < value <= 2**24


HYBRID_MODELS = (
    Architecture(
        ("qwen3_next",),
        ("Qwen3Next",),
        {"linear": FUSED_GDN, "attention": GATED_ATTENTION, "dense": DENSE, "sparse": QWEN_MOE},
        (QWEN_LAYERS, BY_STEP),
        switches=QWEN_SWITCHES,
    ),
    Architecture(
        ("qwen3_5_text", "qwen3_5"),
        ("Qwen3_5",),
        {"linear": GDN, "attention": GATED_ATTENTION, "dense": DENSE},
        (QWEN_LAYERS, "dense"),
        switches=QWEN_SWITCHES,
    ),
    Architecture(
        ("qwen3_5_moe_text", "qwen3_5_moe"),
        ("Qwen3_5Moe",),
        {"linear": GDN, "attention": GATED_ATTENTION, "dense": DENSE, "sparse": QWEN_MOE},
        (QWEN_LAYERS, BY_STEP),
        switches=QWEN_SWITCHES,
    ),
    Architecture(
        ("qwen4_exp_text", "qwen4_exp"),
        ("Qwen4Exp",),
        {"linear": GDN, "attention": GATED_ATTENTION, "dense": DENSE, "sparse": QWEN_MOE},
        (
            Listed(
                "layer_types",
                {
                    "linear_attention": "linear",
                    "full_attention": "attention",
                    "qwen_sparse_attention": "attention",
                },
                QWEN_LAYERS.other,
            ),
            BY_STEP,
        ),
        switches=QWEN_SWITCHES,
        unknown=(
            (
                "num_hidden_layers",
                "the projections of hyper-connections, per-layer embeddings and the indexer are "
                "left out",
            ),
        ),
    ),
    Architecture(
        ("nemotron_h",),
        ("NemotronH",),
        NEMOTRON_BLOCKS,
        (
            Listed(
                "hybrid_override_pattern",
                NEMOTRON_LETTERS,
                Listed("layers_block_type", NEMOTRON_WORDS, "attention"),
            ),
        ),
        keys={**MAMBA_KEYS, "expert_hidden_size": ("moe_latent_size", "hidden_size")},
        switches={"n_shared_experts": 0},
        container="backbone.layers",
    ),
    Architecture(
        ("granitemoehybrid",),
        ("GraniteMoeHybrid",),
        {
            "mamba": _mamba("mamba"),
            "attention": GQA,
            "sparse": GRANITE_MOE,
            "shared": GRANITE_SHARED,
        },
        (
            Listed("layer_types", MAMBA_LAYERS, "mamba"),
            If("num_experts", "sparse", ""),
            If("shared_intermediate_size", "shared", ""),
        ),
        keys={**MAMBA_KEYS, "moe_intermediate_size": "intermediate_size"},
    ),
    Architecture(
        ("bamba",),
        ("Bamba",),
        {"mamba": _mamba("mamba"), "attention": GQA, "dense": gated("feed_forward")},
        (Members("attn_layer_indices", "attention", "mamba"), "dense"),
        keys=MAMBA_KEYS,
    ),
    Architecture(
        ("falcon_h1",),
        ("FalconH1",),
        {"mamba": _mamba("mamba"), "attention": GQA, "dense": gated("feed_forward")},
        ("mamba", "attention", "dense"),
        keys=MAMBA_KEYS,
    ),
    Architecture(
        ("minimax", "minimax_text_01"),
        ("MiniMax", "MiniMaxText01"),
        {
            "linear": (
                Linear("self_attn.qkv_proj", (Part("self_attn.qkv_proj", QUERY),) * 3, HIDDEN),
                single("self_attn.output_gate", QUERY, HIDDEN),
                single("self_attn.out_proj", HIDDEN, QUERY),
            ),
            "attention": GQA,
            "sparse": experts("block_sparse_moe", ("w1", "w3", "w2")),
        },
        (
            Listed(
                "attn_type_list",
                {"0": "linear", "1": "attention"},
                Listed(
                    "layer_types",
                    {"linear_attention": "linear", "full_attention": "attention"},
                    "attention",
                ),
            ),
            "sparse",
        ),
        keys={"moe_intermediate_size": "intermediate_size"},
    ),
    Architecture(
        ("lfm2", "lfm2_moe"),
        ("Lfm2", "Lfm2Moe"),
        {
            "conv": (
                single("conv.in_proj", split("3 * hidden_size"), HIDDEN),
                single("conv.out_proj", HIDDEN, split("hidden_size")),
            ),
            "attention": attention(names=("q_proj", "k_proj", "v_proj", "out_proj")),
            "dense": gated("feed_forward", MLP, ("w1", "w3", "w2")),
            "sparse": experts("feed_forward", ("w1", "w3", "w2"), width=EXPERT),
        },
        (
            Listed("layer_types", {"conv": "conv", "full_attention": "attention"}),
            If("num_experts", Leading("num_dense_layers", "dense", "sparse"), "dense"),
        ),
        prepared=adjusted_inner,
    ),
)
