"""Sizes: the numbers of a model's config, checked, with what a model class derives or assumes;
widths per rank. No layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from humming.errors import ModelError
from tuner.workload.architectures import Architecture, Width
from tuner.workload.config_file import ConfigFile
from tuner.workload.values import Values, fault, missing, validated

WIDTH_END = 2**31
"""A layer's n and k lie below this: they are 32-bit arguments of kernels."""

_Size = Annotated[int, Field(ge=1, le=2**24)]
_Count = Annotated[int, Field(ge=1, le=1024)]
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


class Sizes(Values):
    """Every number that a width or a layer count may ask for; None where the config has none."""

    hidden_size: _Size | None = None
    intermediate_size: _Size | None = None
    moe_intermediate_size: _Size | None = None
    shared_expert_intermediate_size: _Size | None = None
    num_hidden_layers: _Count | None = None
    num_attention_heads: _Size | None = None
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    num_experts: _Size | None = None
    num_experts_per_tok: _Size | None = None
    decoder_sparse_step: _Size | None = None
    mlp_only_layers: list[int] | None = None


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of one model; `keys` gives a field's name in `file`, for messages. `assumed` are
    sentences for the user.
    """

    file: str
    values: Sizes
    keys: Mapping[str, str]
    assumed: tuple[str, ...] = ()

    def require(self, name: str) -> int:
        """The size called `name`; ModelError where the config has none."""
        value = getattr(self.values, name)
        if value is None:
            raise missing(self.file, self.keys.get(name, name), "a positive integer")
        return int(value)

    def per_rank(self, width: Width, tp: int) -> int:
        """`width` as one of `tp` ranks holds it; ModelError where the ranks cannot share it."""
        sizes = [self.require(name) for name in width.sizes]
        if width.share == "whole":
            return self._product(width, math.prod(sizes))
        first, rest = sizes[0], math.prod(sizes[1:])
        replicated = width.share == "kv_heads" and tp > first
        larger, smaller = (tp, first) if replicated else (first, tp)
        if larger % smaller:
            raise self._indivisible(width.sizes[0], tp, replicated)
        return self._product(width, rest if replicated else first // tp * rest)

    def has_experts(self, rule: str, layer: int) -> bool:
        """Whether layer number `layer` has experts, by the architecture's `sparse` rule."""
        if rule == "step":
            step = self.values.decoder_sparse_step or 1
            return layer not in (self.values.mlp_only_layers or ()) and (layer + 1) % step == 0
        return rule == "always"

    def top_k(self) -> int:
        """Experts per token; ModelError where there are fewer experts."""
        top_k, experts = self.require("num_experts_per_tok"), self.require("num_experts")
        if top_k > experts:
            key = self.keys["num_experts"]
            raise ModelError(
                f"{self.file}: `num_experts_per_tok <= {key}` must hold, but got "
                f"num_experts_per_tok={top_k}, {key}={experts}; correct the file"
            )
        return top_k

    def bounded(self, value: int, name: str) -> int:
        """`value`, the width called `name`; ModelError where it does not fit a kernel's 32-bit
        argument.
        """
        if value < WIDTH_END:
            return value
        raise ModelError(
            f"{self.file}: `{name} < 2**31` must hold, but got {value}; correct the file"
        )

    def _product(self, width: Width, value: int) -> int:
        return self.bounded(value, " * ".join(self.keys.get(name, name) for name in width.sizes))

    def _indivisible(self, name: str, tp: int, replicated: bool) -> ModelError:
        key = self.keys.get(name, name)
        rule = f"tp % {key}" if replicated else f"{key} % tp"
        return ModelError(
            f"{self.file}: `{rule} == 0` must hold, but got {key}={self.require(name)}, tp={tp}; "
            f"use a --tp that divides {self.require(name)}"
        )


def read_sizes(config: ConfigFile, architecture: Architecture) -> ModelSizes:
    """The sizes in `config` by `architecture`'s keys, head counts resolved. Raises ModelError for
    any bad value.
    """
    keys = {name: architecture.keys.get(name, name) for name in Sizes.model_fields}
    raw: dict[str, Any] = {
        name: config.values[key] for name, key in keys.items() if key in config.values
    }
    absent = {name: value for name, value in architecture.defaults.items() if name not in raw}
    values = validated(Sizes, {**raw, **absent}, config.name, keys=keys)
    assumed = tuple(
        f"{config.name} has no {name}: taken as {value}, as {architecture.model_type} models do"
        for name, value in absent.items()
    )
    return _with_heads(ModelSizes(config.name, values, keys, assumed))


def _with_heads(sizes: ModelSizes) -> ModelSizes:
    """num_key_value_heads (as many as heads) and head_dim (hidden_size / heads) filled in where the
    config has none.
    """
    heads = sizes.require("num_attention_heads")
    kv_heads = sizes.values.num_key_value_heads or heads
    if heads % kv_heads:
        raise ModelError(
            f"{sizes.file}: `num_attention_heads % num_key_value_heads == 0` must hold, but got "
            f"num_attention_heads={heads}, num_key_value_heads={kv_heads}; correct the file"
        )
    head_dim = sizes.values.head_dim or _head_dim(sizes, heads)
    update = {"num_key_value_heads": kv_heads, "head_dim": head_dim}
    filled = sizes.values.model_copy(update=update)
    return ModelSizes(sizes.file, filled, sizes.keys, sizes.assumed)


def _head_dim(sizes: ModelSizes, heads: int) -> int:
    hidden = sizes.require("hidden_size")
    if hidden % heads:
        raise ModelError(
            f"{sizes.file}: `hidden_size % num_attention_heads == 0` must hold where head_dim is "
            f"missing, but got hidden_size={hidden}, num_attention_heads={heads}; "
            f"add head_dim to the file"
        )
    return hidden // heads


def read_dtype(config: ConfigFile) -> str:
    """The model's own float type, "bf16", "fp16" or "fp32", from `dtype` or `torch_dtype`; bf16
    where neither is given.
    """
    for key in ("dtype", "torch_dtype"):
        value = config.values.get(key)
        if value is None:
            continue
        name = value.removeprefix("torch.") if isinstance(value, str) else ""
        if name not in DTYPES:
            raise fault(config.name, key, "bfloat16, float16 or float32", value)
        return DTYPES[name]
    return "bf16"
