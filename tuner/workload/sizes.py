"""Sizes: the numbers of a model's config, checked, with what a model class derives or assumes;
formulas over them, widths per rank. No layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from humming.checkpoints.config.faults import fault, missing
from humming.checkpoints.config.text_config import TextConfig
from humming.errors import ModelError
from tuner.workload.architectures import Architecture, Width

WIDTH_END = 2**31
"""A layer's n and k lie below this: they are 32-bit arguments of kernels."""

SIZE_END, LAYERS_END = 2**24, 1024
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}

USUAL_KEYS: Mapping[str, tuple[str, ...]] = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "model_dim"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim"),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "num_key_value_heads",
        "num_kv_heads",
        "n_head_kv",
        "multi_query_group_num",
    ),
    "head_dim": ("head_dim", "kv_channels", "attention_head_dim"),
    "num_experts": ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_tok",
        "num_experts_per_token",
        "top_k_experts",
        "experts_per_token",
        "moe_top_k",
        "moe_topk",
        "moe_k",
    ),
    "moe_intermediate_size": (
        "moe_intermediate_size",
        "expert_intermediate_size",
        "moe_ffn_hidden_size",
    ),
    "n_shared_experts": ("n_shared_experts", "num_shared_experts", "num_shared_expert"),
}
"""Where public configs keep a size; the first key that is there counts. Others are called as the
size is.
"""

LAYER_LISTS = ("layer_types", "layers_block_type", "hybrid_override_pattern", "block_configs")
"""What describes each layer also tells how many there are, where nothing else does."""

ONE_FOR_ALL = ("hidden_size",)
"""Sizes that no model has a list of, one for each layer."""

USUAL_SWITCHES: Mapping[str, str] = {
    "head_dim": "hidden_size / num_attention_heads",
    "num_key_value_heads": "num_attention_heads",
}


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of one model. `layer` is a layer's number, or None for what stands outside
    layers.
    """

    config: TextConfig
    architecture: Architecture
    noted: dict[str, str] = field(default_factory=dict, compare=False)

    def layers(self) -> int:
        """How many layers the model has."""
        name, key = "num_hidden_layers", self.key("num_hidden_layers")
        value = self.config.get(key)
        if value is None:
            lists = (self.config.get(list_key) for list_key in LAYER_LISTS)
            value = next((len(found) for found in lists if isinstance(found, (list, str))), None)
        if value is None:
            raise missing(self.config.name, self.config.path(key), "a positive integer")
        return self._integer(name, value, 1, LAYERS_END)

    def notes(self) -> list[str]:
        """Sentences on what was taken for granted, and on what the config cannot tell."""
        unknown = [
            f"{self.config.name}: {sentence}"
            for condition, sentence in self.architecture.unknown
            if self.holds(condition, None)
        ]
        return [*self.noted.values(), *unknown]

    def key(self, name: str) -> str:
        """The key under which the config holds `name`, or would."""
        keys = self.architecture.keys.get(name) or USUAL_KEYS.get(name) or name
        keys = (keys,) if isinstance(keys, str) else keys
        return next((key for key in keys if self.config.get(key) is not None), keys[0])

    def size(self, name: str, layer: int | None) -> int:
        """The size `name` (of one layer, where it is a list); ModelError where there is none."""
        key = self.key(name)
        value = self.config.get(key)
        if isinstance(value, list) and layer is not None and name not in ONE_FOR_ALL:
            value = self.listed(key, value, layer)
        if value is not None:
            return self._integer(name, value, 1, SIZE_END)
        assumed = self.architecture.defaults.get(name)
        unsaid = self.architecture.switches.get(name, USUAL_SWITCHES.get(name))
        default = unsaid if assumed is None else assumed
        if default is None or default == 0:
            raise missing(self.config.name, self.config.path(key), "a positive integer")
        result = default if isinstance(default, int) else self.value(default, layer, name)
        if assumed is not None:
            self._note(name, result)
        return result

    def listed(self, key: str, value: list[Any] | str, layer: int) -> Any:
        """The value for `layer` in a list with one for each layer; ModelError where it is too
        short.
        """
        if layer < len(value):
            return value[layer]
        expected = f"one value for each of {self.layers()} layers"
        raise fault(self.config.name, self.config.path(key), expected, value)

    def holds(self, condition: str, layer: int | None) -> bool:
        """Whether a switch is on, or a size given and not 0; "!" turns it round."""
        name, equals, expected = condition.removeprefix("!").partition("=")
        key = self.key(name)
        value = self.config.get(key)
        if isinstance(value, list) and layer is not None:
            value = self.listed(key, value, layer)
        if value is None:
            value = self.architecture.switches.get(name, self.architecture.defaults.get(name, 0))
        elif isinstance(value, (int, float)):
            value = self._integer(
                name, int(value) if value is True or value is False else value, 0, SIZE_END
            )
        held = str(value).lower() == expected if equals else bool(value)
        return held != condition.startswith("!")

    def value(self, formula: str, layer: int | None, missing_name: str = "") -> int:
        """`formula` over the sizes of `layer`; ModelError where a division leaves a rest."""
        return sum(self._term(term, layer, missing_name) for term in _parsed(formula))

    def per_rank(self, width: Width, tp: int, layer: int | None) -> int:
        """`width` as one of `tp` ranks holds it; ModelError where the ranks cannot share it."""
        value = self.value(width.formula, layer)
        if width.share == "whole":
            return self.bounded(value, width.formula)
        if width.share == "split":
            if value % tp:
                raise self._indivisible(width.formula, value, tp)
            return self.bounded(value // tp, width.formula)
        name = first_name(width)
        count = self.size(name, layer)
        if width.share == "kv_heads" and tp > count:
            if tp % count:
                raise self._indivisible(name, count, tp, replicated=True)
            return self.bounded(value // count, width.formula)
        if count % tp:
            raise self._indivisible(name, count, tp)
        return self.bounded(value // tp, width.formula)

    def check_groups(self, query: str, key_value: str, layer: int | None) -> None:
        """ModelError where heads do not fall into equal groups, one for each key-value head."""
        heads, kv_heads = self.size(query, layer), self.size(key_value, layer)
        if heads % kv_heads:
            query, key_value = self.key(query), self.key(key_value)
            raise ModelError(
                f"{self.config.name}: `{query} % {key_value} == 0` must hold, but got "
                f"{query}={heads}, {key_value}={kv_heads}; correct the file"
            )

    def top_k(self, layer: int | None) -> int:
        """Experts per token; ModelError where there are fewer experts."""
        top_k, experts = self.size("num_experts_per_tok", layer), self.size("num_experts", layer)
        if top_k > experts:
            few, many = self.key("num_experts_per_tok"), self.key("num_experts")
            raise ModelError(
                f"{self.config.name}: `{few} <= {many}` must hold, but got {few}={top_k}, "
                f"{many}={experts}; correct the file"
            )
        return top_k

    def bounded(self, value: int, name: str) -> int:
        """`value`, the width called `name`; ModelError where it does not fit a kernel's 32-bit
        argument.
        """
        if value < WIDTH_END:
            return value
        raise ModelError(
            f"{self.config.name}: `{name} < 2**31` must hold, but got {value}; correct the file"
        )

    def _integer(self, name: str, value: Any, low: int, high: int) -> int:
        path = self.config.path(self.key(name))
        if isinstance(value, bool) or not isinstance(value, int):
            raise fault(self.config.name, path, "an integer", value)
        if value < low:
            raise fault(self.config.name, path, f"at least {low}", value)
        if value > high:
            raise fault(self.config.name, path, f"at most {high}", value)
        return value

    def _term(self, term: tuple[tuple[str, str], ...], layer: int | None, missing_name: str) -> int:
        result, text = 1, ""
        for operator, factor in term:
            number = int(factor) if factor.isdigit() else self.size(factor, layer)
            if operator == "/" and result % number:
                where = f" where {missing_name} is missing" if missing_name else ""
                advice = f"add {missing_name} to the file" if missing_name else "correct the file"
                raise ModelError(
                    f"{self.config.name}: `{text} % {factor} == 0` must hold{where}, but got "
                    f"{text}={result}, {factor}={number}; {advice}"
                )
            result = result // number if operator == "/" else result * number
            text = f"{text} {operator} {factor}" if text else factor
        return result

    def _indivisible(self, name: str, value: int, tp: int, replicated: bool = False) -> ModelError:
        key = self.key(name) if name.isidentifier() else name
        rule = f"tp % {key}" if replicated else f"{key} % tp"
        rule = f"({key}) % tp" if " " in key else rule
        return ModelError(
            f"{self.config.name}: `{rule} == 0` must hold, but got {key}={value}, tp={tp}; "
            f"use a --tp that divides {value}"
        )

    def _note(self, name: str, value: int) -> None:
        self.noted.setdefault(
            name,
            f"{self.config.name} has no {self.config.path(self.key(name))}: taken as {value}, as "
            f"{self.architecture.model_types[0]} models do",
        )


def first_name(width: Width) -> str:
    """The first size in a width's formula: for shared heads, their number."""
    return _parsed(width.formula)[0][0][1]


@lru_cache(maxsize=1024)
def _parsed(formula: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Terms of (operator, factor): "a * b + c / 2" -> ((("*", a), ("*", b)), (("*", c), ("/",
    2))).
    """
    terms: list[tuple[tuple[str, str], ...]] = []
    for term in formula.split(" + "):
        words = ["*", *term.split()]
        terms.append(tuple(zip(words[::2], words[1::2], strict=True)))
    return tuple(terms)


def read_dtype(config: TextConfig) -> str:
    """The model's own float type, "bf16", "fp16" or "fp32", from `dtype` or `torch_dtype`; bf16
    where neither is given.
    """
    for values, path in ((config.values, config.path), (config.outer, str)):
        for key in ("dtype", "torch_dtype"):
            value = values.get(key)
            if value is None:
                continue
            name = value.removeprefix("torch.") if isinstance(value, str) else ""
            if name not in DTYPES:
                raise fault(config.name, path(key), "bfloat16, float16 or float32", value)
            return DTYPES[name]
    return "bf16"
