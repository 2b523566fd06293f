"""Models whose quantized layers have the benchmark's shapes, tuned into one database as a user does
it. Measures no peer."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gemm_formats import compared
from humming.dispatch.tables import TunedTable, current_table
from humming.errors import CompileError, HummingError
from humming.jit.cache import compiled
from humming.settings import tables_dir
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem
from tuner.pipeline import Job, plan, tune
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task
from tuner.progress import Watch
from tuner.searching.compile_pool import cores
from tuner.searching.sampler import Sampler
from tuner.store.open import open_store
from tuner.store.records import Winner
from tuner.store.store import Store

Shape = tuple[int, int]
Point = tuple[str, int, int, int]
"""Format, n, k and m."""

SHAPES: tuple[Shape, ...] = (
    (8192, 8192),
    (6144, 4096),
    (28672, 4096),
    (4096, 14336),
    (8192, 1024),
    (7168, 8192),
)
_LATE_SECONDS = 3.0
"""Time for each point that the first pass did not reach."""

COMPILED_AHEAD = 8
"""Proposals for each point; the tuner's own compilers are ahead of it from then on."""

M_VALUES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


@dataclass(frozen=True)
class TunedShapes:
    """The table that serves, and the winner of each (format, n, k, m); the heuristic serves the
    others."""

    table: TunedTable
    winners: dict[Point, Winner]


def tune_shapes(
    shapes: Sequence[Shape],
    m_values: tuple[int, ...],
    device: Device,
    seconds: float,
    folder: Path,
    formats: Sequence[str],
    url: str,
) -> TunedShapes:
    """Tunes a bf16 layer of each format and shape for each m, `seconds` in all, into the database
    `url`; `folder` is for the models.

    Raises HummingError where nothing could be proved at all.
    """
    parts = [part for format in formats for part in _models(shapes, format)]
    for done, (config, _) in enumerate(parts):
        (folder / str(done)).mkdir()
        (folder / str(done) / "config.json").write_text(json.dumps(config), "utf-8")
    tables = tables_dir(url)
    with open_store(url) as store:
        found = _tune_all(parts, m_values, device, Budget(seconds), store, folder, tables)
        points = {(f, n, k, m) for f in formats for n, k in shapes for m in m_values}
        left = len(points - set(found))
        if left:  # large problems took longer than their share
            late = Budget(_LATE_SECONDS * left)
            found = _tune_all(parts, m_values, device, late, store, folder, tables)
    table = current_table(tables)
    if table is None:
        raise HummingError("nothing was proved for any point; raise --budget")
    return TunedShapes(table, found)


def compile_ahead(
    shapes: Sequence[Shape],
    m_values: tuple[int, ...],
    device: Device,
    formats: Sequence[str],
    proposals: int = COMPILED_AHEAD,
) -> int:
    """Compiles the heuristic's config of each point, and what the tuner will try first of it, on
    all cores at once; how many.

    The tuner finds it in the kernel cache: its results are the same, it only waits less.
    """
    wanted: dict[tuple[KernelConfig, str], Problem] = {}
    with tempfile.TemporaryDirectory() as folder:
        for config, _ in (part for format in formats for part in _models(shapes, format)):
            model = Path(folder) / "config.json"
            model.write_text(json.dumps(config), "utf-8")
            for task in plan(Job(model, device, m_values))[1]:
                for first in _first_tried(task, proposals):
                    wanted[first, task.problem.format] = task.problem
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(lambda key: _compiled(key[0], wanted[key], device), wanted))
    return len(wanted)


def _compiled(config: KernelConfig, problem: Problem, device: Device) -> None:
    with contextlib.suppress(CompileError):  # the tuner will say so
        compiled(config, problem, device)


def _first_tried(task: Task, proposals: int) -> Iterator[KernelConfig]:
    """The heuristic's config, and the sampler's first proposals where nothing is known."""
    candidates = task.candidates
    yield candidates.heuristic
    sampler = Sampler(candidates.configs, candidates.promising)
    sampler.know(candidates.heuristic, None)
    for _ in range(proposals):
        config = sampler.ask()
        if config is None:
            return
        yield config


def _tune_all(
    parts: list[tuple[dict[str, Any], list[Shape]]],
    m_values: tuple[int, ...],
    device: Device,
    budget: Budget,
    store: Store,
    folder: Path,
    tables: Path,
) -> dict[Point, Winner]:
    """Tunes what is not settled yet of each model, and returns all winners."""
    watch = Watch(Console(file=sys.stderr))
    for done, (_, held) in enumerate(parts):
        left = sum(len(shapes) for _, shapes in parts[done:])
        job = Job(folder / str(done) / "config.json", device, m_values)
        share = budget.share(len(held), left)
        tuned = tune(job, store, tables, share, watch)
    winners = [(w.problem, w) for w in store.winners(tuned.identity)]
    return {(p.format, p.n, p.k, p.m): winner for p, winner in winners}


def _models(shapes: Sequence[Shape], format: str) -> list[tuple[dict[str, Any], list[Shape]]]:
    """Configs of models, and the shapes of the layers that each quantizes: a few models for the
    benchmark's own shapes, as each costs the start of a process, and one for any other."""
    parts = []
    left = list(shapes)
    for config, held in (
        (_llama(format, 4096, 14336, (32, 8, 128), "qkv", "gate_up", "down"), SHAPES[1:4]),
        (_llama(format, 8192, 1024, (64, 8, 128), "o", "down"), (SHAPES[0], SHAPES[4])),
    ):
        if set(held) <= set(left):
            left = [shape for shape in left if shape not in held]
            parts.append((config, list(held)))
    return parts + [(_llama(format, n, 128, (1, 1, k), "o"), [(n, k)]) for n, k in left]


def _llama(
    format: str, hidden: int, intermediate: int, heads: tuple[int, int, int], *layers: str
) -> dict[str, Any]:
    """A bf16 Llama of which only these layers are quantized; `heads` are those of q, those of k and
    v, and their size."""
    names = {"qkv": "[qkv]_proj", "o": "o_proj", "gate_up": "(gate|up)_proj", "down": "down_proj"}
    scheme: dict[str, Any] = {
        "targets": [f"re:.*{names[layer]}" for layer in layers],
        "format": "pack-quantized",
        "weights": {**compared(format).weights, "dynamic": False},
    }
    if compared(format).inputs is not None:
        scheme["input_activations"] = compared(format).inputs
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "num_hidden_layers": 1,
        "vocab_size": 128,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": scheme},
            "ignore": ["lm_head"],
        },
    }
