"""The table of architectures, part five: decoders whose attention or MLP changes its width from
layer to layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.workload.architectures.blocks import (
    AFTER_DENSE,
    DENSE,
    DENSE_OR_SPARSE,
    GQA,
    HIDDEN,
    KEY_VALUE,
    MOE,
    QUERY,
    Linears,
    after_router,
    attention,
    experts,
    gated,
    heads,
    single,
    split,
)
from tuner.workload.architectures.vocabulary import (
    Architecture,
    Every,
    If,
    Linear,
    Listed,
    Members,
    Part,
    Trailing,
    Width,
)

SLIDING = {"full_attention": "full", "sliding_attention": "sliding", "0": "full", "1": "sliding"}

LOCAL_QUERY = heads("local_heads * local_head_dim")
LOCAL_KEY = Width("local_kv_heads * local_head_dim", "kv_heads")
LOCAL_VALUE = Width("local_kv_heads * local_value_dim", "kv_heads")
VALUE = Width("num_key_value_heads * v_head_dim", "kv_heads")

GLOBAL_QUERY = heads("num_attention_heads * global_head_dim")
GLOBAL_KEY = Width("global_kv_heads * global_head_dim", "kv_heads")


def _gemma4(query: Width, key: Width, value: str = "v_proj") -> Linears:
    return attention(query=query, key=key, value=key, names=("q_proj", "k_proj", value, "o_proj"))


def _reusing(query: Width) -> Linears:
    """Attention of a layer that takes its keys and values from an earlier one."""
    return (
        single("self_attn.q_proj", query, HIDDEN),
        single("self_attn.o_proj", HIDDEN, query),
    )


PER_LAYER_INPUT = (
    single("per_layer_input_gate", Width("hidden_size_per_layer_input"), HIDDEN),
    single("per_layer_projection", HIDDEN, Width("hidden_size_per_layer_input")),
)
PER_LAYER_MODEL = single(
    "per_layer_model_projection",
    Width("num_hidden_layers * hidden_size_per_layer_input"),
    HIDDEN,
    when=("hidden_size_per_layer_input",),
)
GEMMA4_FULL = If("attention_k_eq_v", "global_alike", "global")


def _unfused(block: str, width: Width) -> Linears:
    """A gated MLP that engines run in three layers."""
    return (
        single(f"{block}.gate_proj", width, HIDDEN),
        single(f"{block}.up_proj", width, HIDDEN),
        single(f"{block}.down_proj", HIDDEN, width),
    )


def _gate(width: Width, *when: str) -> Linear:
    return single("self_attn.g_proj", width, HIDDEN, when=when)


STEP_QUERY = heads("sliding_heads * head_dim")
STEP_KEY = Width("sliding_kv_heads * head_dim", "kv_heads")


def described_blocks(values: Mapping[str, Any], key: str = "block_configs") -> dict[str, Any]:
    """A config whose `block_configs` describe each layer, with lists of plain sizes in their place.

    An attention without heads of its own and an MLP without a width are left out; either may be a
    single linear layer.
    """
    blocks = values.get(key)
    if not isinstance(blocks, list):
        return dict(values)
    attentions = [_part(block, "attention") for block in blocks]
    mlps = [_part(block, "ffn") for block in blocks]
    return {
        **values,
        "attention_kinds": [_kind(part) for part in attentions],
        "mlp_kinds": [_kind(part) for part in mlps],
        "num_key_value_heads": [_kv_heads(part, values) for part in attentions],
        "intermediate_size": [_inner(part, values) for part in mlps],
    }


def _part(block: Any, name: str) -> Mapping[str, Any]:
    part = block.get(name) if isinstance(block, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def _kind(part: Mapping[str, Any]) -> str:
    if part.get("replace_with_linear") is True:
        return "linear"
    return "none" if part.get("no_op") is True else "usual"


def _kv_heads(part: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    group = _positive(part.get("n_heads_in_group"))
    heads = _positive(values.get("num_attention_heads"))
    if not group or not heads:
        return part.get("num_key_value_heads", values.get("num_key_value_heads"))
    return heads // group if not heads % group else group


def _inner(part: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """An MLP's width: `ffn_mult` of two thirds of the hidden size, rounded up to a multiple of
    256.
    """
    factor, hidden = part.get("ffn_mult"), _positive(values.get("hidden_size"))
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not hidden:
        return part.get("intermediate_size", values.get("intermediate_size"))
    if not 0 < factor < 2**20 or hidden > 2**24:
        return factor
    return -(-int(2 * factor * hidden / 3) // 256) * 256


def _positive(value: Any) -> int:
    """`value` where it is a size, else 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


SKIPPED = {"none": "", "linear": "linear_attention", "usual": "attention"}
SKIPPED_MLP = {"none": "", "linear": "linear_mlp", "usual": "dense"}

UNEVEN_MODELS = (
    Architecture(
        ("mllama", "mllama_text_model"),
        ("Mllama",),
        {
            "attention": GQA,
            "cross": (
                single("cross_attn.q_proj", QUERY, HIDDEN),
                Linear(
                    "cross_attn.kv_proj",
                    (Part("cross_attn.k_proj", KEY_VALUE), Part("cross_attn.v_proj", KEY_VALUE)),
                    HIDDEN,
                ),
                single("cross_attn.o_proj", HIDDEN, QUERY),
            ),
            "dense": DENSE,
        },
        (Members("cross_attention_layers", "cross", "attention"), "dense"),
    ),
    Architecture(
        ("nemotron-nas", "nemotron_nas", "deci"),
        ("DeciLM",),
        {
            "attention": GQA,
            "linear_attention": (single("self_attn.linear_attn", HIDDEN, HIDDEN),),
            "dense": DENSE,
            "linear_mlp": (single("mlp.linear_mlp", HIDDEN, HIDDEN),),
        },
        (
            Listed("attention_kinds", SKIPPED, "attention"),
            Listed("mlp_kinds", SKIPPED_MLP, "dense"),
        ),
        keys={
            "num_key_value_heads": ("num_key_value_heads", "num_key_value_heads_per_layer"),
        },
        prepared=described_blocks,
    ),
    Architecture(
        ("mimo_v2_flash", "mimo_v2"),
        ("MiMoV2Flash", "MiMoV2"),
        {
            "full": attention(value=VALUE, out_k=heads("num_attention_heads * v_head_dim")),
            "sliding": attention(
                query=LOCAL_QUERY,
                key=LOCAL_KEY,
                value=LOCAL_VALUE,
                out_k=heads("local_heads * local_value_dim"),
            ),
            "dense": DENSE,
            "sparse": MOE,
        },
        (
            Listed("hybrid_layer_pattern", SLIDING, Listed("layer_types", SLIDING, "full")),
            AFTER_DENSE,
        ),
        keys={
            "local_heads": ("swa_num_attention_heads", "num_attention_heads"),
            "local_kv_heads": ("swa_num_key_value_heads", "num_key_value_heads"),
            "local_head_dim": ("swa_head_dim", "head_dim"),
            "local_value_dim": ("swa_v_head_dim", "v_head_dim", "head_dim"),
        },
        switches={"v_head_dim": "head_dim"},
    ),
    Architecture(
        ("laguna",),
        ("Laguna",),
        {
            "attention": (
                *GQA,
                _gate(heads("num_attention_heads"), "!gating=per-element"),
                _gate(QUERY, "gating=per-element"),
            ),
            "dense": _unfused("mlp", split("intermediate_size")),
            "sparse": after_router(
                MOE,
                _unfused("mlp.shared_expert", split("shared_expert_intermediate_size")),
            ),
        },
        ("attention", Listed("mlp_layer_types", DENSE_OR_SPARSE, "sparse")),
        keys={"num_attention_heads": ("num_attention_heads_per_layer", "num_attention_heads")},
        renamed={"shared_expert": "shared_experts"},
    ),
    Architecture(
        ("step3p5", "step3p7", "step3p7_text"),
        ("Step3p5", "Step3p5Flash", "Step3p7", "Step3p7Flash"),
        {
            "full": (*GQA, _gate(heads("num_attention_heads"), "use_head_wise_attn_gate")),
            "sliding": (
                *attention(query=STEP_QUERY, key=STEP_KEY, value=STEP_KEY),
                _gate(heads("sliding_heads"), "use_head_wise_attn_gate"),
            ),
            "dense": DENSE,
            "sparse": after_router(
                experts("moe"), gated("share_expert", split("share_expert_dim"))
            ),
        },
        (
            Listed("layer_types", SLIDING, "full"),
            If("moe_layers_enum", Members("moe_layers_enum", "sparse", "dense"), AFTER_DENSE),
        ),
        keys={
            "num_key_value_heads": ("num_attention_groups", "num_key_value_heads"),
            "sliding_heads": ("attention_other_setting.num_attention_heads", "num_attention_heads"),
            "sliding_kv_heads": (
                "attention_other_setting.num_attention_groups",
                "num_attention_groups",
                "num_key_value_heads",
            ),
        },
        renamed={"moe": "mlp", "share_expert": "shared_experts"},
        unknown=(
            (
                "!use_head_wise_attn_gate",
                "the config names no head-wise gate of attention, so that none is planned",
            ),
        ),
    ),
    Architecture(
        ("gemma3n_text", "gemma3n"),
        ("Gemma3n",),
        {
            "attention": GQA,
            "laurel": (
                single("laurel.linear_left", Width("laurel_rank"), HIDDEN),
                single("laurel.linear_right", HIDDEN, Width("laurel_rank")),
            ),
            "dense": DENSE,
            "per_layer": PER_LAYER_INPUT,
        },
        ("attention", "laurel", "dense", If("hidden_size_per_layer_input", "per_layer", "")),
        once=(PER_LAYER_MODEL,),
        switches={"laurel_rank": 64},
        unknown=(("num_hidden_layers", "the small projections of AltUp are left out"),),
    ),
    Architecture(
        ("gemma4_text", "gemma4", "gemma4_unified", "gemma4_unified_text"),
        ("Gemma4",),
        {
            "sliding": GQA,
            "global": _gemma4(GLOBAL_QUERY, GLOBAL_KEY),
            "global_alike": _gemma4(GLOBAL_QUERY, GLOBAL_KEY, "k_proj"),
            "sliding_reusing": _reusing(QUERY),
            "global_reusing": _reusing(GLOBAL_QUERY),
            "dense": DENSE,
            "wide": gated("mlp", split("2 * intermediate_size")),
            "sparse": experts("", router="router.proj"),
            "per_layer": PER_LAYER_INPUT,
        },
        (
            Trailing(
                "num_kv_shared_layers",
                Listed(
                    "layer_types",
                    {"full_attention": "global_reusing", "sliding_attention": "sliding_reusing"},
                    Every("sliding_window_pattern", 6, "global_reusing", "sliding_reusing"),
                ),
                Listed(
                    "layer_types",
                    {"full_attention": GEMMA4_FULL, "sliding_attention": "sliding"},
                    Every("sliding_window_pattern", 6, GEMMA4_FULL, "sliding"),
                ),
            ),
            If("use_double_wide_mlp", Trailing("num_kv_shared_layers", "wide", "dense"), "dense"),
            If("enable_moe_block", "sparse", ""),
            If("hidden_size_per_layer_input", "per_layer", ""),
        ),
        once=(PER_LAYER_MODEL,),
        keys={"global_kv_heads": ("num_global_key_value_heads", "num_key_value_heads")},
        switches={"head_dim": 256, "global_head_dim": 512},
        renamed={"router": "moe"},
    ),
)
