"""The table of architectures, part four: decoders with latent attention or experts of a latent
width.
"""

from __future__ import annotations

from tuner.workload.architectures.blocks import (
    AFTER_DENSE,
    DEEPSEEK_MOE,
    DENSE,
    HIDDEN,
    INDEXER,
    KV_A,
    MLA,
    MLA_SWITCHES,
    MLA_TAIL,
    ONE,
    Q_RANK,
    QUERY,
    SHARED,
    VALUES,
    after_router,
    experts,
    gated,
    heads,
    single,
)
from tuner.workload.architectures.vocabulary import (
    Architecture,
    If,
    Linear,
    Listed,
    Members,
    Part,
    Width,
)

MLA_BLOCKS = {"attention": MLA, "dense": DENSE, "sparse": DEEPSEEK_MOE}

KDA_WIDTH = heads("kda_heads * kda_head_dim")
KDA_RANK = Width("kda_head_dim")
KDA_FULL, KDA_LOW = ("use_full_rank_gate",), ("!use_full_rank_gate",)
KDA = (
    Linear(
        "self_attn.in_proj_qkvgfab",
        (
            *(Part(f"self_attn.{name}_proj", KDA_WIDTH) for name in ("q", "k", "v", "g")),
            Part("self_attn.f_a_proj", KDA_RANK),
            Part("self_attn.b_proj", heads("kda_heads")),
        ),
        HIDDEN,
        when=KDA_FULL,
    ),
    *(single(f"self_attn.{n}_proj", KDA_WIDTH, HIDDEN, when=KDA_LOW) for n in ("q", "k", "v")),
    single("self_attn.f_a_proj", KDA_RANK, HIDDEN, when=KDA_LOW),
    single("self_attn.f_b_proj", KDA_WIDTH, KDA_RANK),
    single("self_attn.b_proj", heads("kda_heads"), HIDDEN, when=KDA_LOW),
    single("self_attn.g_a_proj", KDA_RANK, HIDDEN, when=KDA_LOW),
    single("self_attn.g_b_proj", KDA_WIDTH, KDA_RANK, when=KDA_LOW),
    single("self_attn.o_proj", HIDDEN, KDA_WIDTH),
)
KIMI_MLA = (
    Linear(
        "self_attn.fused_qkv_a_g_proj",
        (
            Part("self_attn.q_a_proj", Q_RANK),
            Part("self_attn.kv_a_proj_with_mqa", KV_A),
            Part("self_attn.g_proj", VALUES),
        ),
        HIDDEN,
        when=("q_lora_rank", "mla_use_output_gate"),
    ),
    Linear(MLA[0].name, MLA[0].parts, HIDDEN, when=("q_lora_rank", "!mla_use_output_gate")),
    MLA[1],
    single("self_attn.g_proj", VALUES, HIDDEN, when=("!q_lora_rank", "mla_use_output_gate")),
    *MLA_TAIL,
)
KIMI_LATENT = ("routed_expert_hidden_size",)
KIMI_RESIDUAL = ("attn_res_block_size",)
KIMI_MOE = after_router(
    experts("block_sparse_moe", ("w1", "w3", "w2"), latent=Width("expert_hidden_size")),
    (
        *gated("block_sparse_moe.shared_experts", SHARED, when=("n_shared_experts",)),
        single(
            "block_sparse_moe.routed_expert_down_proj",
            Width("expert_hidden_size"),
            HIDDEN,
            when=KIMI_LATENT,
        ),
        single(
            "block_sparse_moe.routed_expert_up_proj",
            HIDDEN,
            Width("expert_hidden_size"),
            when=KIMI_LATENT,
        ),
    ),
)

V4_HEAD = Width("head_dim")
V4_NAMES = {
    "attn": "self_attn",
    "ffn": "mlp",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "wq_b": "q_b_proj",
    "wq_a": "q_a_proj",
    "wkv": "kv_proj",
    "wo_a": "o_a_proj",
    "wo_b": "o_b_proj",
}


def _compressor(block: str, width: str) -> Linear:
    parts = (Part(f"{block}.wkv", Width(width)), Part(f"{block}.wgate", Width(width)))
    return Linear(f"{block}.fused_wkv_wgate", parts, HIDDEN, "plain")


V4_BLOCKS = {
    "attention": (
        Linear(
            "attn.fused_wqa_wkv", (Part("attn.wq_a", Q_RANK), Part("attn.wkv", V4_HEAD)), HIDDEN
        ),
        single("attn.wq_b", QUERY, Q_RANK),
        single(
            "attn.wo_a",
            heads("o_groups * o_lora_rank"),
            Width("num_attention_heads * head_dim / o_groups"),
        ),
        single("attn.wo_b", HIDDEN, heads("o_groups * o_lora_rank")),
    ),
    "indexed": (
        single("attn.indexer.wq_b", Width("index_n_heads * index_head_dim"), Q_RANK),
        single("attn.indexer.weights_proj", Width("index_n_heads"), HIDDEN, "plain"),
        _compressor("attn.indexer.compressor", "2 * index_head_dim"),
        _compressor("attn.compressor", "2 * head_dim"),
    ),
    "compressed": (_compressor("attn.compressor", "head_dim"),),
    "sparse": after_router(
        experts("ffn", ("w1", "w3", "w2")),
        (
            *gated("ffn.shared_experts", SHARED, ("w1", "w3", "w2"), when=("n_shared_experts",))[
                :1
            ],
            Linear(
                "ffn.shared_experts.down_proj",
                (Part("ffn.shared_experts.w2", HIDDEN),),
                SHARED,
                when=("n_shared_experts",),
            ),
        ),
    ),
}

LATENT_MODELS = (
    Architecture(
        ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite", "mistral4", "axk1"),
        (
            "DeepseekV2",
            "DeepseekV3",
            "KimiK2",
            "KimiK25",
            "KimiVL",
            "Glm4MoeLite",
            "Mistral4",
            "AXK1",
        ),
        MLA_BLOCKS,
        ("attention", AFTER_DENSE),
        switches=MLA_SWITCHES,
    ),
    Architecture(
        ("deepseek_v32", "glm_moe_dsa"),
        ("DeepseekV32", "GlmMoeDsa"),
        {**MLA_BLOCKS, "indexer": INDEXER},
        ("attention", If("index_n_heads", "indexer", ""), AFTER_DENSE),
        switches=MLA_SWITCHES,
    ),
    Architecture(
        ("kimi_linear", "kimi_k3"),
        ("KimiLinear", "KimiK3"),
        {
            "kda": KDA,
            "attention": KIMI_MLA,
            "residual": (
                single("self_attention_res_proj", ONE, HIDDEN, "router"),
                single("mlp_res_proj", ONE, HIDDEN, "router"),
            ),
            "dense": DENSE,
            "sparse": KIMI_MOE,
        },
        (
            Listed(
                "layer_types",
                {"linear_attention": "kda", "full_attention": "attention"},
                Members("linear_attn_config.full_attn_layers", "attention", "kda", base=1),
            ),
            AFTER_DENSE,
            If("attn_res_block_size", "residual", ""),
        ),
        once=(single("output_attn_res_proj", ONE, HIDDEN, "router", when=KIMI_RESIDUAL),),
        keys={
            "kda_heads": ("linear_attn_config.num_heads", "linear_num_heads"),
            "kda_head_dim": ("linear_attn_config.head_dim", "linear_head_dim"),
            "use_full_rank_gate": "linear_attn_config.use_full_rank_gate",
            "expert_hidden_size": ("routed_expert_hidden_size", "hidden_size"),
        },
        switches=MLA_SWITCHES,
        renamed={"block_sparse_moe": "mlp", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"},
    ),
    Architecture(
        ("deepseek_v4",),
        ("DeepseekV4",),
        V4_BLOCKS,
        (
            "attention",
            Listed(
                "compress_ratios",
                {"0": "", "1": "", "4": "indexed", "128": "compressed"},
                Listed(
                    "layer_types",
                    {
                        "sliding_attention": "",
                        "compressed_sparse_attention": "indexed",
                        "heavily_compressed_attention": "compressed",
                    },
                ),
            ),
            "sparse",
        ),
        renamed=V4_NAMES,
    ),
)
