"""Layers of experts, tuned by our tuner into one database: what `benchmarks.moe` compares, and how
a table made for one routing does under another. Measures no peer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from benchmarks.moe_layers import Layer
from humming.dispatch.heuristics import heuristic
from humming.errors import CompileError, HummingError
from humming.jit.cache import compiled
from humming.jit.identity import here
from humming.settings import tables_dir
from humming.spec.config import KernelConfig
from humming.spec.device import Device
from humming.spec.problem import Problem
from humming.spec.routing import UNIFORM
from search_spaces.load import load_spaces
from tuner.pipeline import Count, settle_open
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task, make_tasks
from tuner.progress import Watch
from tuner.searching.compile_pool import cores
from tuner.store.open import open_store
from tuner.store.records import Winner
from tuner.store.tables import publish
from tuner.workload import LayerGroup, Workload

_LATE_SECONDS = 1.5
"""Time for each point that the first pass did not reach."""


def tune_layers(
    layers: Mapping[str, Layer],
    formats: Sequence[str],
    m_values: Sequence[int],
    device: Device,
    seconds: float,
    url: str,
    routing: str = UNIFORM,
) -> dict[str, Winner]:
    """Tunes each layer in each format for each m, `seconds` in all, into the database `url`, whose
    table is written: the winner of each problem id; the heuristic serves the others.

    Raises HummingError where a layer cannot be tuned here.
    """
    tasks = tasks_of(layers, formats, m_values, device, routing)
    compile_heuristics([task.problem for task in tasks], device)
    identity, watch = here(device), Watch(Console(file=sys.stderr))
    with open_store(url) as store:
        settle_open(tasks, identity, store, Budget(seconds), watch, None, Count())
        settled = store.settled(identity)
        left = sum(task.problem.id not in settled for task in tasks)
        if left:  # large problems took longer than their share
            late = Budget(_LATE_SECONDS * left)
            settle_open(tasks, identity, store, late, watch, None, Count())
        publish(store, tables_dir(url))
        return {winner.problem.id: winner for winner in store.winners(identity)}


def tasks_of(
    layers: Mapping[str, Layer],
    formats: Sequence[str],
    m_values: Sequence[int],
    device: Device,
    routing: str,
) -> list[Task]:
    """What the tuner settles, few tokens first."""
    groups = tuple(
        LayerGroup("moe", of.n, of.k, 1, of.experts, of.top_k, format, (name,))
        for format in formats
        for name, of in layers.items()
    )
    workload = Workload("experts", 1, "bf16", groups, (), (), routing)
    tasks, skipped = make_tasks(workload, tuple(m_values), device, load_spaces())
    if skipped:
        raise HummingError(f"{skipped[0].group.layers[0]}: {skipped[0].reason}")
    return tasks


def compile_heuristics(problems: Iterable[Problem], device: Device) -> None:
    """Compiles what serves the problems untuned, on all cores at once."""
    wanted: dict[tuple[KernelConfig, str], Problem] = {}
    for problem in problems:
        wanted.setdefault((heuristic(problem, device), problem.format), problem)

    def one(item: tuple[tuple[KernelConfig, str], Problem]) -> None:
        with suppress(CompileError):
            compiled(item[0][0], item[1], device)

    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(one, wanted.items()))


def database_in(folder: Path) -> str:
    """The URL of an empty database in `folder`."""
    return f"sqlite:///{folder}/tuning.db"
