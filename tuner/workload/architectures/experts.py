"""The table of architectures, part two: decoders with experts, all layers with the same
attention.
"""

from __future__ import annotations

from tuner.workload.architectures.blocks import (
    AFTER_DENSE,
    BY_STEP,
    DEEPSEEK_MOE,
    DENSE,
    DENSE_OR_SPARSE,
    EXPERT,
    EXPERTS,
    GQA,
    HIDDEN,
    MOE,
    QUERY,
    QWEN_MOE,
    Linears,
    after_router,
    attention,
    experts,
    fused_attention,
    fused_gated,
    gated,
    single,
    split,
)
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
)

ALL_SPARSE = ("attention", "sparse")
BY_DEEPSEEK = ("attention", AFTER_DENSE)
WIDE_EXPERTS: Keys = {
    "moe_intermediate_size": "intermediate_size",
    "num_experts": ("num_local_experts", "num_experts"),
}
"""Models whose only MLPs are experts say their width as others say a dense MLP's."""


def _blocks(
    sparse: Linears, attention: Linears = GQA, dense: Linears = DENSE
) -> dict[str, Linears]:
    return {"attention": attention, "dense": dense, "sparse": sparse}


def _stacked_experts(block: str, router: str) -> Linears:
    """Granite's experts, stored as one tensor each."""
    up, down = f"{block}.input_linear", f"{block}.output_linear"
    return (
        single(f"{block}.{router}", EXPERTS, HIDDEN, "router"),
        Linear(f"{block}.experts.w13", (Part(up, EXPERT),) * 2, HIDDEN, "moe"),
        Linear(f"{block}.experts.w2", (Part(down, HIDDEN),), EXPERT, "moe"),
    )


GRANITE_MOE = _stacked_experts("block_sparse_moe", "router.layer")
GRANITE_SHARED = fused_gated(
    "shared_mlp.input_linear", "shared_mlp.output_linear", split("shared_intermediate_size")
)
MIXTRAL_MOE = experts("block_sparse_moe", ("w1", "w3", "w2"))
MINIMAX_NAMES = {"block_sparse_moe": "mlp", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}

EXPERT_MODELS = (
    Architecture(
        ("mixtral", "minimax_m2"),
        ("Mixtral", "MiniMaxM2"),
        _blocks(MIXTRAL_MOE),
        ALL_SPARSE,
        keys=WIDE_EXPERTS,
        defaults={"num_key_value_heads": 8},
        renamed=MINIMAX_NAMES,
    ),
    Architecture(
        ("minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text", "minimax_m3_text"),
        ("MiniMaxM3", "MiniMaxM3VL", "MiniMaxM3Sparse"),
        _blocks(
            after_router(
                MIXTRAL_MOE,
                gated(
                    "block_sparse_moe.shared_experts",
                    split("shared_intermediate_size"),
                    when=("shared_intermediate_size",),
                ),
            ),
            dense=gated("mlp", split("dense_intermediate_size")),
        ),
        BY_DEEPSEEK,
        keys={"moe_intermediate_size": ("moe_intermediate_size", "intermediate_size")},
        renamed=MINIMAX_NAMES,
        unknown=(
            (
                "sparse_attention_config",
                "the index projections of sparse attention are left out, since their widths do not "
                "follow from the config",
            ),
        ),
    ),
    Architecture(
        ("phimoe",),
        ("PhiMoE", "Phimoe"),
        _blocks(MIXTRAL_MOE),
        ALL_SPARSE,
        keys=WIDE_EXPERTS,
        renamed=MINIMAX_NAMES,
    ),
    Architecture(("qwen2_moe",), ("Qwen2Moe",), _blocks(QWEN_MOE), ("attention", BY_STEP)),
    Architecture(
        ("qwen3_moe", "qwen3_vl_moe_text", "qwen3_vl_moe", "qwen3_omni_moe_text"),
        ("Qwen3Moe", "Qwen3VLMoe"),
        _blocks(MOE),
        ("attention", BY_STEP),
        switches={"head_dim": "hidden_size / num_attention_heads"},
    ),
    Architecture(
        ("olmoe", "flex_olmo", "mellum"),
        ("Olmoe", "OlmoE", "FlexOlmo", "Mellum"),
        _blocks(MOE),
        ALL_SPARSE,
        keys={"moe_intermediate_size": ("moe_intermediate_size", "intermediate_size")},
    ),
    Architecture(
        ("gpt_oss",),
        ("GptOss",),
        _blocks(experts("mlp", router="router"), attention(engine="attn")),
        ALL_SPARSE,
        keys=WIDE_EXPERTS,
        switches={"head_dim": 64},
        renamed={"self_attn": "attn"},
    ),
    Architecture(
        ("llama4", "llama4_text"),
        ("Llama4",),
        _blocks(
            after_router(
                experts("feed_forward", router="router"),
                gated("feed_forward.shared_expert", EXPERT),
            ),
            dense=gated("feed_forward", split("intermediate_size_mlp")),
        ),
        (
            "attention",
            If(
                "moe_layers",
                Members("moe_layers", "sparse", "dense"),
                Every("interleave_moe_layer_step", 1, "sparse", "dense"),
            ),
        ),
        keys=WIDE_EXPERTS,
        defaults={"head_dim": 128},
    ),
    Architecture(
        ("granitemoe",), ("GraniteMoe",), _blocks(GRANITE_MOE), ALL_SPARSE, keys=WIDE_EXPERTS
    ),
    Architecture(
        ("granitemoeshared",),
        ("GraniteMoeShared",),
        {**_blocks(GRANITE_MOE), "shared": GRANITE_SHARED},
        (*ALL_SPARSE, If("shared_intermediate_size", "shared", "")),
        keys=WIDE_EXPERTS,
    ),
    Architecture(
        ("deepseek", "dots1", "glm4_moe", "glm4v_moe_text", "glm4v_moe", "solar_open"),
        ("Deepseek", "Dots1", "Glm4Moe", "Glm4vMoe", "SolarOpen"),
        _blocks(DEEPSEEK_MOE),
        BY_DEEPSEEK,
    ),
    Architecture(
        ("exaone_moe",),
        ("ExaoneMoe", "ExaoneMoE"),
        _blocks(DEEPSEEK_MOE),
        ("attention", Listed("is_moe_layer", DENSE_OR_SPARSE, AFTER_DENSE)),
    ),
    Architecture(
        ("bailing_moe", "bailing_moe_v2"),
        ("BailingMoe", "BailingMoeV2"),
        _blocks(DEEPSEEK_MOE, fused_attention("attention.query_key_value", "attention.dense")),
        BY_DEEPSEEK,
    ),
    Architecture(
        ("ernie4_5_moe",),
        ("Ernie4_5_Moe", "Ernie4_5_MoE", "Ernie4_5Moe"),
        _blocks(DEEPSEEK_MOE),
        (
            "attention",
            Leading(
                "moe_layer_start_index", "dense", Every("moe_layer_interval", 1, "sparse", "dense")
            ),
        ),
        keys={"n_shared_experts": "moe_num_shared_experts"},
    ),
    Architecture(
        ("hunyuan_v1_moe",),
        ("HunYuanMoEV1", "HunYuanMoE"),
        _blocks(
            after_router(
                experts("mlp", router="gate.wg"),
                gated("mlp.shared_mlp", split("n_shared_experts * intermediate_size")),
            )
        ),
        ALL_SPARSE,
        keys={"moe_intermediate_size": ("moe_intermediate_size", "intermediate_size")},
    ),
    Architecture(
        ("afmoe",),
        ("Afmoe",),
        _blocks(
            after_router(
                experts("mlp", router="router.gate"),
                gated(
                    "mlp.shared_experts",
                    split("n_shared_experts * moe_intermediate_size"),
                    when=("n_shared_experts",),
                ),
            ),
            (*GQA, single("self_attn.gate_proj", QUERY, HIDDEN)),
        ),
        ("attention", Leading("num_dense_layers", "dense", "sparse")),
    ),
    Architecture(
        ("dbrx",),
        ("Dbrx",),
        _blocks(
            (
                single("ffn.router.layer", EXPERTS, HIDDEN, "router"),
                Linear(
                    "ffn.experts.w13",
                    (Part("ffn.experts.mlp.w1", EXPERT), Part("ffn.experts.mlp.v1", EXPERT)),
                    HIDDEN,
                    "moe",
                ),
                Linear("ffn.experts.w2", (Part("ffn.experts.mlp.w2", HIDDEN),), EXPERT, "moe"),
            ),
            fused_attention("norm_attn_norm.attn.Wqkv", "norm_attn_norm.attn.out_proj"),
        ),
        ALL_SPARSE,
        keys={
            "num_key_value_heads": "attn_config.kv_n_heads",
            "num_experts": "ffn_config.moe_num_experts",
            "num_experts_per_tok": "ffn_config.moe_top_k",
            "moe_intermediate_size": "ffn_config.ffn_hidden_size",
        },
        container="transformer.blocks",
    ),
)
