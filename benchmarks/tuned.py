"""A tuned table for one layer, made as a user makes it: a config.json, an empty database, the
tuner. Measures no peer."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from humming.dispatch.tables import TunedTable
from humming.errors import HummingError
from humming.settings import tables_dir
from humming.spec.device import Device
from tuner.pipeline import Job, tune
from tuner.planning.budget import Budget
from tuner.progress import Watch
from tuner.store.open import open_store
from tuner.store.records import Settled, Winner

_GROUP_128 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
_CHANNEL_8 = {"num_bits": 8, "strategy": "channel"}
_TOKEN_INT8 = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
FORMATS: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "int4g128": ("pack-quantized", {**_GROUP_128, "symmetric": True}, None),
    "uint4g128z": ("pack-quantized", {**_GROUP_128, "symmetric": False}, None),
    "int8": ("pack-quantized", {**_CHANNEL_8, "type": "int", "symmetric": True}, None),
    "fp8e4m3": ("float-quantized", {**_CHANNEL_8, "type": "float", "symmetric": True}, None),
    "mxfp4": (
        "mxfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
        None,
    ),
    "nvfp4": (
        "nvfp4-pack-quantized",
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
        None,
    ),
    "int8-int8": ("int-quantized", {**_CHANNEL_8, "type": "int", "symmetric": True}, _TOKEN_INT8),
    "int4-int8": (
        "int-quantized",
        {"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": True},
        _TOKEN_INT8,
    ),
}
"""Formats that can be compared, and how a compressed-tensors config says each: its storage, weights
and activations."""


@dataclass(frozen=True)
class TunedLayer:
    """What the tuner proved about a layer: for each m its winner, and how its search ended."""

    table: TunedTable
    winners: dict[int, Winner]
    settled: dict[int, Settled]


def model_config(n: int, k: int, format: str) -> dict[str, Any]:
    """A bf16 Llama whose only quantized layer, `self_attn.o_proj`, has the shape n x k."""
    storage, weights, activations = FORMATS[format]
    scheme = {
        "targets": ["re:.*o_proj"],
        "format": storage,
        "weights": {**weights, "dynamic": False},
        "input_activations": activations,
    }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": n,
        "intermediate_size": 128,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": k,
        "num_hidden_layers": 1,
        "vocab_size": 128,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": storage,
            "config_groups": {"group_0": scheme},
            "ignore": ["lm_head"],
        },
    }


def tune_layer(
    n: int,
    k: int,
    format: str,
    m_values: tuple[int, ...],
    device: Device,
    seconds: float,
    folder: Path,
) -> TunedLayer:
    """Tunes a bf16 layer of `format`, one of FORMATS, for each m, `seconds` in all, into a database
    in the empty `folder`.

    Raises HummingError where nothing could be proved for an m.
    """
    model = folder / "config.json"
    model.write_text(json.dumps(model_config(n, k, format)), "utf-8")
    url = f"sqlite:///{folder}/tuning.db"
    watch = Watch(Console(file=sys.stderr))
    with open_store(url) as store:
        tuned = tune(Job(model, device, m_values), store, tables_dir(url), Budget(seconds), watch)
        winners = {winner.problem.m: winner for winner in store.winners(tuned.identity)}
        ended = store.settled(tuned.identity)
    missing = sorted(set(m_values) - winners.keys())
    if tuned.table is None or missing:
        raise HummingError(f"n={n} k={k}: nothing was proved for m={missing}; raise --budget")
    settled = {task.problem.m: ended[task.problem.id] for task in tuned.tasks}
    return TunedLayer(tuned.table, winners, settled)
