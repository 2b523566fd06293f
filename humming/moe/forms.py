"""How public models build and store a block of experts: a row a model type. Reading one is
checkpoints.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from humming.checkpoints.config.text_config import TextConfig
from humming.errors import ModelError
from humming.moe.activations import ExpertActivation
from humming.moe.router import RouterRule
from humming.spec.naming import did_you_mean

Rule = Callable[[TextConfig], RouterRule]


@dataclass(frozen=True)
class BlockForm:
    """Names inside a block, and how its config says the rest.

    router      the module of the router; its `weight`, maybe a `bias`
    correction  the tensor that is added to scores for choosing, or ""
    parts       gate and up of an expert (up alone where it is not gated), then down
    shared      the module of the shared expert, "" where there is none; its parts
    shared_gate the module whose sigmoid weighs it, or ""
    interleaved a stacked float tensor alternates gate and up; `transposed`: it is [experts, k, n]
    clamped     gpt-oss's activation
    biased      the router and all projections of experts have biases
    """

    rule: Rule
    router: str = "gate"
    correction: str = ""
    parts: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    shared: str = ""
    shared_parts: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")
    shared_gate: str = ""
    interleaved: bool = False
    transposed: bool = False
    clamped: bool = False
    biased: bool = False


def form_of(config: TextConfig) -> BlockForm:
    """The form of the config's model type. Raises ModelError where it is not known."""
    name = str(config.get("model_type"))
    if name not in FORMS:
        raise ModelError(
            f"{config.name}: experts of model_type '{name}' are not known"
            f"{did_you_mean(name, FORMS)}; build a HummingMoE of its parts"
        )
    return FORMS[name]


def activation_of(config: TextConfig, form: BlockForm) -> ExpertActivation:
    """What stands between an expert's projections."""
    if form.clamped:
        alpha, limit = config.get("swiglu_alpha"), config.get("swiglu_limit")
        return ExpertActivation("swiglu_clamped", float(alpha or 1.702), float(limit or 7.0))
    name = config.get("hidden_act") or config.get("mlp_hidden_act") or "silu"
    return ExpertActivation.named(str(name), gated=len(form.parts) == 3)


def _number(config: TextConfig, *keys: str, default: Any = None) -> Any:
    found = next((config.get(key) for key in keys if config.get(key) is not None), default)
    if found is None:
        raise ModelError(f"{config.name} must have {' or '.join(keys)}, but has none")
    return found


def _top_k(config: TextConfig) -> int:
    return int(_number(config, "num_experts_per_tok", "top_k_experts", "moe_topk"))


def _softmax(normalized: bool | None = None) -> Rule:
    def rule(config: TextConfig) -> RouterRule:
        told = bool(_number(config, "norm_topk_prob", default=False))
        return RouterRule(_top_k(config), "softmax", told if normalized is None else normalized)

    return rule


def _chosen(scoring: str, scales_input: bool = False) -> Rule:
    def rule(config: TextConfig) -> RouterRule:
        return RouterRule(_top_k(config), scoring, False, scales_input=scales_input)

    return rule


def _deepseek(scoring: str, group_score: str) -> Rule:
    def rule(config: TextConfig) -> RouterRule:
        groups = int(_number(config, "n_group", default=1))
        method = config.get("topk_method")
        if method == "greedy":
            groups = 1
        return RouterRule(
            _top_k(config),
            str(_number(config, "scoring_func", default=scoring)),
            bool(_number(config, "norm_topk_prob", default=scoring == "sigmoid")),
            float(_number(config, "routed_scaling_factor", default=1.0)),
            groups,
            int(_number(config, "topk_group", default=1)) if groups > 1 else 1,
            group_score,
        )

    return rule


_BIAS = "gate.e_score_correction_bias"
_DEEPSEEK_V3 = BlockForm(_deepseek("sigmoid", "top2"), correction=_BIAS, shared="shared_experts")
_QWEN3 = BlockForm(_softmax())
_QWEN2 = BlockForm(_softmax(), shared="shared_expert", shared_gate="shared_expert_gate")

FORMS: dict[str, BlockForm] = {
    "mixtral": BlockForm(_softmax(True), parts=("w1", "w3", "w2")),
    "qwen2_moe": _QWEN2,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_next": _QWEN2,
    "qwen3_5_moe_text": _QWEN2,
    "olmoe": _QWEN3,
    "deepseek_v2": BlockForm(_deepseek("softmax", "max"), shared="shared_experts"),
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe": _DEEPSEEK_V3,
    "nemotron_h": BlockForm(
        _deepseek("sigmoid", "top2"),
        correction=_BIAS,
        parts=("up_proj", "down_proj"),
        shared="shared_experts",
        shared_parts=("up_proj", "down_proj"),
    ),
    "gpt_oss": BlockForm(
        _chosen("chosen_softmax"),
        router="router",
        interleaved=True,
        transposed=True,
        clamped=True,
        biased=True,
    ),
    "llama4_text": BlockForm(
        _chosen("chosen_sigmoid", scales_input=True),
        router="router",
        shared="shared_expert",
        transposed=True,
    ),
}
"""Model type of the language model -> the form of its blocks."""
