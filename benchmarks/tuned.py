"""A tuned table for one layer, made by our own tuner from an empty database. Measures no peer."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from humming.dispatch.tables import TunedTable, write_generation
from humming.errors import HummingError, LegalityError
from humming.jit.identity import here
from humming.settings import tables_dir
from humming.spec.device import Device
from search_spaces.load import load_spaces
from tuner.budget import Budget
from tuner.isolation import Worker
from tuner.pipeline import read_bytes_per_s, settle
from tuner.progress import Watch
from tuner.search import Scope
from tuner.store.open import open_store
from tuner.store.records import Settled, Winner
from tuner.tasks import make_tasks
from tuner.workload import LayerGroup, Workload

FORMAT = "int4g128"


@dataclass(frozen=True)
class TunedLayer:
    """What the tuner proved about a layer: for each m its winner, and how its search ended.

    `read_bytes_per_s` is what it measured as this device's limit.
    """

    table: TunedTable
    read_bytes_per_s: float
    winners: dict[int, Winner]
    settled: dict[int, Settled]


def tune_layer(
    n: int, k: int, m_values: tuple[int, ...], device: Device, seconds: float, folder: Path
) -> TunedLayer:
    """Tunes a bf16 layer for each m, `seconds` in all, into a database in the empty `folder`.

    Raises HummingError where nothing could be proved.
    """
    group = LayerGroup("dense", n, k, 1, None, None, FORMAT, ("layer",))
    workload = Workload("benchmark", 1, "bf16", (group,), (), ())
    tasks, skipped = make_tasks(workload, m_values, device, load_spaces())
    if skipped:
        raise LegalityError(skipped[0].reason)
    identity, budget = here(device), Budget(seconds)
    url = f"sqlite:///{folder}/tuning.db"
    watch = Watch(Console(file=sys.stderr))
    with open_store(url) as store, Worker(device) as worker, watch.running(len(tasks), 0):
        rate = read_bytes_per_s(worker)
        for done, task in enumerate(tasks):
            share = budget.share(1.0, len(tasks) - done)
            settle(Scope(task, identity, store, worker, watch, rate), share)
        table = write_generation(store.table_entries(), tables_dir(url))
        ids = {task.problem.id: task.problem.m for task in tasks}
        settled = {ids[key]: value for key, value in store.settled(identity).items()}
        winners = {winner.problem.m: winner for winner in store.winners(identity)}
    missing = sorted(set(m_values) - winners.keys())
    if missing:
        raise HummingError(f"n={n} k={k}: nothing was proved for m={missing}; raise --budget")
    return TunedLayer(table, rate, winners, settled)
