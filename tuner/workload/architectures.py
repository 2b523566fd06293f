"""The table of architectures: which linear layers a model has, how engines fuse and split them. A
new one is one entry.

Only data: reading values is sizes.py, counting layers is plan.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Share = Literal["split", "kv_heads", "whole"]
Where = Literal["every", "dense", "sparse"]
Kind = Literal["dense", "moe", "router"]


@dataclass(frozen=True)
class Width:
    """A product of sizes (fields of `sizes.Sizes`; an empty product is 1) and how ranks share it.

    "split": the first size is divided by tp. "kv_heads": so too, but heads are replicated where
    ranks outnumber them. "whole": every rank holds all of it.
    """

    sizes: tuple[str, ...]
    share: Share


@dataclass(frozen=True)
class Part:
    """One linear layer as the checkpoint names it below `model.layers.<i>.`; `{expert}` stands for
    an expert's number.
    """

    module: str
    out: Width


@dataclass(frozen=True)
class Linear:
    """One fused layer: `parts` stacked along n. `kind` "router" is a dense layer that no one
    quantizes.

    `where` says in which of the model's layers it stands: every one, those with a dense MLP, those
    with experts (sparse).
    """

    name: str
    parts: tuple[Part, ...]
    k: Width
    kind: Kind = "dense"
    where: Where = "every"


@dataclass(frozen=True)
class Architecture:
    """One entry of the table.

    `stem` begins the class names under `architectures`. `keys` maps a field of `sizes.Sizes` to
    this model's own key where that differs. `defaults` are what the public model class assumes
    where a key is absent. `sparse` says which layers have experts: "never", "always", or "step"
    (decoder_sparse_step and mlp_only_layers).
    """

    model_type: str
    stem: str
    linears: tuple[Linear, ...]
    keys: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, int] = field(default_factory=dict)
    sparse: Literal["never", "always", "step"] = "never"
    prefixes: tuple[str, ...] = (
        "model.layers",
        "model.language_model.layers",
        "language_model.model.layers",
    )


HIDDEN = Width(("hidden_size",), "whole")
QUERY = Width(("num_attention_heads", "head_dim"), "split")
KEY_VALUE = Width(("num_key_value_heads", "head_dim"), "kv_heads")
MLP = Width(("intermediate_size",), "split")
EXPERT = Width(("moe_intermediate_size",), "split")
SHARED = Width(("shared_expert_intermediate_size",), "split")
EXPERTS = Width(("num_experts",), "whole")
ONE = Width((), "whole")


def _single(
    module: str, out: Width, k: Width, kind: Kind = "dense", where: Where = "every"
) -> Linear:
    return Linear(module, (Part(module, out),), k, kind, where)


def _gated(block: str, width: Width, where: Where) -> tuple[Linear, ...]:
    gate_up = (Part(f"{block}.gate_proj", width), Part(f"{block}.up_proj", width))
    return (
        Linear(f"{block}.gate_up_proj", gate_up, HIDDEN, where=where),
        _single(f"{block}.down_proj", HIDDEN, width, where=where),
    )


def _experts(block: str, gate: str, up: str, down: str) -> tuple[Linear, ...]:
    each = f"{block}.experts.{{expert}}"
    w13 = (Part(f"{each}.{gate}", EXPERT), Part(f"{each}.{up}", EXPERT))
    w2 = (Part(f"{each}.{down}", HIDDEN),)
    return (
        Linear(f"{block}.experts.w13", w13, HIDDEN, "moe", "sparse"),
        Linear(f"{block}.experts.w2", w2, EXPERT, "moe", "sparse"),
    )


ATTENTION = (
    Linear(
        "self_attn.qkv_proj",
        (
            Part("self_attn.q_proj", QUERY),
            Part("self_attn.k_proj", KEY_VALUE),
            Part("self_attn.v_proj", KEY_VALUE),
        ),
        HIDDEN,
    ),
    _single("self_attn.o_proj", HIDDEN, QUERY),
)
DENSE = _gated("mlp", MLP, "dense")
ROUTER = _single("mlp.gate", EXPERTS, HIDDEN, "router", "sparse")
SHARED_EXPERT = (
    _single("mlp.shared_expert_gate", ONE, HIDDEN, "router", "sparse"),
    *_gated("mlp.shared_expert", SHARED, "sparse"),
)
QWEN_EXPERTS = _experts("mlp", "gate_proj", "up_proj", "down_proj")
FUSED_ON_DISK = (
    Linear(
        "self_attn.qkv_proj",
        tuple(Part("self_attn.qkv_proj", width) for width in (QUERY, KEY_VALUE, KEY_VALUE)),
        HIDDEN,
    ),
    _single("self_attn.o_proj", HIDDEN, QUERY),
    Linear("mlp.gate_up_proj", (Part("mlp.gate_up_proj", MLP),) * 2, HIDDEN),
    _single("mlp.down_proj", HIDDEN, MLP),
)

ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("llama", "Llama", ATTENTION + DENSE),
    Architecture("mistral", "Mistral", ATTENTION + DENSE, defaults={"num_key_value_heads": 8}),
    Architecture("granite", "Granite", ATTENTION + DENSE),
    Architecture("phi3", "Phi3", FUSED_ON_DISK),
    Architecture("qwen2", "Qwen2", ATTENTION + DENSE),
    Architecture("qwen3", "Qwen3", ATTENTION + DENSE, defaults={"head_dim": 128}),
    Architecture(
        "qwen2_moe",
        "Qwen2Moe",
        (*ATTENTION, *DENSE, ROUTER, *SHARED_EXPERT, *QWEN_EXPERTS),
        sparse="step",
    ),
    Architecture(
        "qwen3_moe", "Qwen3Moe", (*ATTENTION, *DENSE, ROUTER, *QWEN_EXPERTS), sparse="step"
    ),
    Architecture(
        "mixtral",
        "Mixtral",
        (
            *ATTENTION,
            _single("block_sparse_moe.gate", EXPERTS, HIDDEN, "router", "sparse"),
            *_experts("block_sparse_moe", "w1", "w3", "w2"),
        ),
        keys={"num_experts": "num_local_experts", "moe_intermediate_size": "intermediate_size"},
        defaults={"num_key_value_heads": 8},
        sparse="always",
    ),
)
