"""The table of architectures, part one: decoders whose layers are all alike, an attention and an
MLP each.
"""

from __future__ import annotations

from tuner.workload.architectures.blocks import (
    DENSE,
    GQA,
    HIDDEN,
    KEY_VALUE,
    KV_A,
    MLA,
    MLA_SWITCHES,
    MLA_TAIL,
    Q_RANK,
    QUERY,
    Linears,
    attention,
    fused_attention,
    fused_gated,
    gated,
    plain,
    single,
    split,
)
from tuner.workload.architectures.vocabulary import Architecture, If, Linear, Part, Width

LAYER = ("attention", "dense")
LLAMA = {"attention": GQA, "dense": DENSE}
GPT_INNER = {"intermediate_size": "4 * hidden_size"}
MQA_KEY_VALUE = Width("head_dim")


def _llama(types: str, classes: str, **more: int | str) -> Architecture:
    """A decoder with the layers of Llama; `more` are the defaults of its public class."""
    return Architecture(
        tuple(types.split()), tuple(classes.split()), LLAMA, LAYER, defaults=dict(more)
    )


def _blocks(attention: Linears, dense: Linears) -> dict[str, Linears]:
    return {"attention": attention, "dense": dense}


def _multi_query(qkv: str, key_value: Width, out: str) -> Linears:
    parts = (Part(qkv, QUERY), Part(qkv, key_value), Part(qkv, key_value))
    return (Linear(qkv, parts, HIDDEN), single(out, HIDDEN, QUERY))


LLAMA_LIKE = (
    _llama("llama", "Llama LLaMA Yi Aquila Xverse Orion"),
    _llama("mistral ministral ministral3", "Mistral Ministral Ministral3", num_key_value_heads=8),
    _llama("granite", "Granite"),
    _llama(
        "qwen2 qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text",
        "Qwen2 Qwen2VL Qwen2_5_VL",
    ),
    _llama("qwen3 qwen3_vl_text", "Qwen3", head_dim=128),
    _llama("gemma gemma2 vaultgemma", "Gemma Gemma2 VaultGemma", head_dim=256),
    _llama(
        "gemma3_text gemma3",
        "Gemma3",
        head_dim=256,
        num_attention_heads=8,
        num_key_value_heads=4,
    ),
    _llama("cohere cohere2", "Cohere Cohere2"),
    _llama("olmo olmo2 olmo3", "Olmo OLMo Olmo2 Olmo3"),
    _llama("mimo", "MiMo"),
    _llama("minicpm", "MiniCPM"),
    _llama("internlm internlm3", "InternLM InternLM3"),
    _llama("bitnet", "BitNet Bitnet"),
    _llama("stablelm stablelm_epoch", "StableLm StableLM StableLMEpoch"),
    _llama("smollm3", "SmolLM3"),
    _llama("seed_oss", "SeedOss", head_dim=128),
    _llama("hunyuan_v1_dense hunyuan", "HunYuanDenseV1 HunYuanDense"),
    _llama("ernie4_5", "Ernie4_5 Ernie4_5_"),
    _llama("exaone4", "Exaone4"),
    _llama("helium cwm iquestcoder", "Helium Cwm IQuestCoder"),
)

FUSED = (
    Architecture(
        ("phi3", "phi4mm", "phi4_multimodal"),
        ("Phi3", "Phi4MM", "Phi4Multimodal"),
        _blocks(
            (
                Linear(
                    "self_attn.qkv_proj",
                    tuple(
                        Part("self_attn.qkv_proj", width) for width in (QUERY, KEY_VALUE, KEY_VALUE)
                    ),
                    HIDDEN,
                ),
                single("self_attn.o_proj", HIDDEN, QUERY),
            ),
            fused_gated("mlp.gate_up_proj", "mlp.down_proj"),
        ),
        LAYER,
    ),
    Architecture(
        ("glm", "glm4", "glm4v_text", "glm4v"),
        ("Glm", "Glm4", "Glm4v"),
        _blocks(GQA, fused_gated("mlp.gate_up_proj", "mlp.down_proj")),
        LAYER,
    ),
    Architecture(
        ("chatglm",),
        ("ChatGLM",),
        _blocks(
            fused_attention("self_attention.query_key_value", "self_attention.dense"),
            fused_gated("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        ),
        LAYER,
        container="transformer.encoder.layers",
    ),
    Architecture(
        ("baichuan",),
        ("Baichuan", "BaiChuan"),
        _blocks(fused_attention("self_attn.W_pack", "self_attn.o_proj"), DENSE),
        LAYER,
    ),
    Architecture(
        ("internlm2",),
        ("InternLM2",),
        _blocks(
            fused_attention("attention.wqkv", "attention.wo"),
            gated("feed_forward", names=("w1", "w3", "w2")),
        ),
        LAYER,
    ),
    Architecture(
        ("qwen",),
        ("QWen",),
        _blocks(
            fused_attention("attn.c_attn", "attn.c_proj"),
            gated("mlp", split("intermediate_size / 2"), ("w2", "w1", "c_proj")),
        ),
        LAYER,
        container="transformer.h",
    ),
    Architecture(
        ("exaone",),
        ("Exaone",),
        _blocks(
            attention("attn.attention", names=("q_proj", "k_proj", "v_proj", "out_proj")),
            gated("mlp", names=("c_fc_0", "c_fc_1", "c_proj")),
        ),
        LAYER,
        container="transformer.h",
    ),
)

UNGATED = (
    Architecture(
        ("phi",),
        ("Phi",),
        _blocks(
            attention(names=("q_proj", "k_proj", "v_proj", "dense")), plain("mlp.fc1", "mlp.fc2")
        ),
        LAYER,
    ),
    Architecture(
        ("starcoder2",), ("Starcoder2",), _blocks(GQA, plain("mlp.c_fc", "mlp.c_proj")), LAYER
    ),
    Architecture(
        ("nemotron", "arcee", "apertus", "jais2"),
        ("Nemotron", "Arcee", "Apertus", "Jais2"),
        _blocks(GQA, plain("mlp.up_proj", "mlp.down_proj")),
        LAYER,
    ),
    Architecture(
        ("persimmon",),
        ("Persimmon",),
        _blocks(
            fused_attention("self_attn.query_key_value", "self_attn.dense"),
            plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        ),
        LAYER,
    ),
    Architecture(
        ("gpt_neox",),
        ("GPTNeoX",),
        _blocks(
            fused_attention("attention.query_key_value", "attention.dense"),
            plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        ),
        LAYER,
        container="gpt_neox.layers",
    ),
    Architecture(
        ("bloom",),
        ("Bloom",),
        _blocks(
            fused_attention("self_attention.query_key_value", "self_attention.dense"),
            plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", split("4 * hidden_size")),
        ),
        LAYER,
        keys={"hidden_size": ("hidden_size", "n_embed", "n_embd")},
        container="transformer.h",
    ),
    Architecture(
        ("gpt2",),
        ("GPT2",),
        _blocks(fused_attention("attn.c_attn", "attn.c_proj"), plain("mlp.c_fc", "mlp.c_proj")),
        LAYER,
        switches=GPT_INNER,
        container="transformer.h",
    ),
    Architecture(
        ("gptj",),
        ("GPTJ",),
        _blocks(
            attention("attn", names=("q_proj", "k_proj", "v_proj", "out_proj")),
            plain("mlp.fc_in", "mlp.fc_out"),
        ),
        LAYER,
        switches=GPT_INNER,
        container="transformer.h",
    ),
    Architecture(
        ("opt",),
        ("OPT",),
        _blocks(attention(names=("q_proj", "k_proj", "v_proj", "out_proj")), plain("fc1", "fc2")),
        LAYER,
        container="model.decoder.layers",
    ),
    Architecture(
        ("mpt",),
        ("MPT", "Mpt"),
        _blocks(
            fused_attention("attn.Wqkv", "attn.out_proj"),
            plain("ffn.up_proj", "ffn.down_proj", split("expansion_ratio * hidden_size")),
        ),
        LAYER,
        keys={"num_key_value_heads": "attn_config.kv_n_heads"},
        switches={"expansion_ratio": 4},
        container="transformer.blocks",
    ),
    Architecture(
        ("falcon", "RefinedWeb", "RefinedWebModel"),
        ("Falcon", "RW"),
        {
            "grouped": fused_attention("self_attention.query_key_value", "self_attention.dense"),
            "single": _multi_query(
                "self_attention.query_key_value", MQA_KEY_VALUE, "self_attention.dense"
            ),
            "full": _multi_query("self_attention.query_key_value", QUERY, "self_attention.dense"),
            "dense": plain("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
        },
        (If("new_decoder_architecture", "grouped", If("multi_query", "single", "full")), "dense"),
        switches={"multi_query": 1, **GPT_INNER},
        container="transformer.h",
    ),
    Architecture(
        ("gpt_bigcode",),
        ("GPTBigCode",),
        {
            "single": _multi_query("attn.c_attn", MQA_KEY_VALUE, "attn.c_proj"),
            "full": _multi_query("attn.c_attn", QUERY, "attn.c_proj"),
            "dense": plain("mlp.c_fc", "mlp.c_proj"),
        },
        (If("multi_query", "single", "full"), "dense"),
        switches={"multi_query": 1, **GPT_INNER},
        container="transformer.h",
    ),
)

LATENT = (
    Architecture(
        ("minicpm3",),
        ("MiniCPM3",),
        _blocks(
            (
                single("self_attn.q_a_proj", Q_RANK, HIDDEN),
                MLA_TAIL[0],
                single("self_attn.kv_a_proj_with_mqa", KV_A, HIDDEN),
                *MLA_TAIL[2:],
            ),
            DENSE,
        ),
        LAYER,
        switches={**MLA_SWITCHES, "v_head_dim": "hidden_size / num_attention_heads"},
    ),
    Architecture(("youtu",), ("Youtu",), _blocks(MLA, DENSE), LAYER, switches=MLA_SWITCHES),
)

DENSE_MODELS = (*LLAMA_LIKE, *FUSED, *UNGATED, *LATENT)
