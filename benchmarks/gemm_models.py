"""Models whose quantized layers have the benchmark's shapes, tuned into one database as a user does
it. Measures no peer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.tuned import model_config
from humming.dispatch.tables import TunedTable, current_table
from humming.errors import HummingError
from humming.settings import tables_dir
from humming.spec.device import Device
from tuner.budget import Budget
from tuner.pipeline import Job, tune
from tuner.progress import Watch
from tuner.store.open import open_store
from tuner.store.records import Winner

Shape = tuple[int, int]

SHAPES: tuple[Shape, ...] = (
    (8192, 8192),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    (8192, 1024),
    (7168, 8192),
)
M_VALUES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


@dataclass(frozen=True)
class TunedShapes:
    """The table that serves, and the winner of each (n, k, m)."""

    table: TunedTable
    winners: dict[tuple[int, int, int], Winner]


def tune_shapes(
    shapes: Sequence[Shape],
    m_values: tuple[int, ...],
    device: Device,
    seconds: float,
    folder: Path,
) -> TunedShapes:
    """Tunes a bf16 layer of each shape for each m, `seconds` in all, into a database in `folder`.

    Raises HummingError where nothing could be proved for a point.
    """
    url = f"sqlite:///{folder}/tuning.db"
    budget, watch = Budget(seconds), Watch(Console(file=sys.stderr))
    parts = _models(shapes)
    with open_store(url) as store:
        for done, (config, held) in enumerate(parts):
            model = folder / str(done)
            model.mkdir()
            (model / "config.json").write_text(json.dumps(config), "utf-8")
            left = sum(len(shapes) for _, shapes in parts[done:])
            job = Job(model / "config.json", device, m_values)
            tuned = tune(job, store, tables_dir(url), budget.share(len(held), left), watch)
        winners = {
            (w.problem.n, w.problem.k, w.problem.m): w for w in store.winners(tuned.identity)
        }
    missing = [(n, k, m) for n, k in shapes for m in m_values if (n, k, m) not in winners]
    table = current_table(tables_dir(url))
    if table is None or missing:
        raise HummingError(f"nothing was proved for (n, k, m) = {missing}; raise --budget")
    return TunedShapes(table, winners)


def _models(shapes: Sequence[Shape]) -> list[tuple[dict[str, Any], list[Shape]]]:
    """Configs of models, and the shapes of the layers that each quantizes: a few models for the
    benchmark's own shapes, as each costs the start of a process, and one for any other."""
    parts = []
    left = list(shapes)
    for config, held in (
        (_llama(4096, 14336, 32, 8, "qkv", "gate_up", "down"), SHAPES[1:4]),
        (_llama(8192, 1024, 64, 8, "o", "down"), (SHAPES[0], SHAPES[4])),
    ):
        if set(held) <= set(left):
            left = [shape for shape in left if shape not in held]
            parts.append((config, list(held)))
    return parts + [(model_config(n, k), [(n, k)]) for n, k in left]


def _llama(hidden: int, intermediate: int, heads: int, kv: int, *layers: str) -> dict[str, Any]:
    """A Llama of which only these layers are quantized."""
    names = {"qkv": "[qkv]_proj", "o": "o_proj", "gate_up": "(gate|up)_proj", "down": "down_proj"}
    config = model_config(hidden, 128)
    scheme = config["quantization_config"]["config_groups"]["group_0"]
    scheme["targets"] = [f"re:.*{names[layer]}" for layer in layers]
    return {
        **config,
        "intermediate_size": intermediate,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": 128,
    }
