"""Neighbours' winners on each other's problems: tried once each, stored as any trial, and what they
take there reaches the runtime by the tuned table."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import read_table
from humming.jit.identity import here, serving_device
from humming.spec.config import config_id, config_to_dict
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tuner.pipeline import Tuned
from tuner.planning.budget import Budget
from tuner.planning.tasks import Task
from tuner.progress import Watch
from tuner.promoting.exchanging import exchange
from tuner.report import to_json
from tuner.searching.candidates import legal_candidates
from tuner.searching.trials import Scope
from tuner.store.entries import trials_of
from tuner.store.open import open_store
from tuner.store.tables import publish
from tuner.worker.isolation import Worker
from tuner.workload import LayerGroup, Workload

SHAPES = ((64, 256), (96, 256), (128, 256), (64, 512))
DEVICE = serving_device(1)
IDENTITY = here(DEVICE)
LAYER = Problem("int4g128", 64, 256, 1)


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/tuning.db") as opened:
        yield opened


def other_config():
    """A config that serves all shapes, and is the heuristic's of none."""
    defaults = {heuristic(replace(LAYER, n=n, k=k), DEVICE) for n, k in SHAPES}
    offered = legal_candidates(LAYER, DEVICE, load_spaces()).configs
    return next(offered[key] for key in sorted(offered) if offered[key] not in defaults)


def promoted(store, config, neighbours=None, ms=(1,)):
    for n, k in SHAPES:
        for m in ms:
            evidence = {"serves": [0 if m == 1 else m, m + 1], "rounds_us": {}}
            if neighbours is not None:
                evidence["neighbours"] = neighbours(replace(LAYER, n=n, k=k, m=m))
            problem = replace(LAYER, n=n, k=k, m=m)
            store.promote(IDENTITY, problem, config, us=8.0, heuristic_us=10.0, evidence=evidence)


def task(problem):
    group = LayerGroup("dense", problem.n, problem.k, 1, None, None, problem.format, ("a",))
    return Task(group, problem, legal_candidates(problem, DEVICE, load_spaces()), 1, 2)


def run(store, shapes=SHAPES):
    watch = Watch(Console(file=io.StringIO()), quiet=True)
    with Worker(DEVICE) as worker:

        def scope_of(task):
            return Scope(task, IDENTITY, store, worker, watch, 1e10, Budget(300.0))

        return exchange([task(replace(LAYER, n=n, k=k)) for n, k in shapes], scope_of)


def test_each_problem_tries_what_it_lacks_once_and_says_what_it_took(store):
    config = other_config()
    promoted(store, config)
    measured = run(store, SHAPES[:1])  # the other problems were tuned by other runs
    tried = [(past.problem.n, past.problem.k, past.config) for past in store.measurements(IDENTITY)]
    assert measured == len(tried) == len(set(tried)) == 2 * len(SHAPES)
    for n, k in SHAPES:
        default = heuristic(replace(LAYER, n=n, k=k), DEVICE)
        assert {c for a, b, c in tried if (a, b) == (n, k)} == {default, config}
    assert run(store) == 0
    for winner in store.winners(IDENTITY):
        found = trials_of(winner)  # None where the machine was too busy to say anything
        if found is not None:
            default = config_id(heuristic(winner.problem, DEVICE))
            assert (found.heuristic, dict(found.ratios)[default]) == (default, 1.0)
            assert dict(found.ratios).keys() == {default, config_id(config)}
        assert (winner.config, winner.us, winner.heuristic_us) == (config, 8.0, 10.0)


def test_too_few_layers_exchange_nothing(store):
    for n, k in SHAPES[:3]:
        problem = replace(LAYER, n=n, k=k)
        evidence = {"serves": [0, 2], "rounds_us": {}}
        store.promote(
            IDENTITY, problem, other_config(), us=8.0, heuristic_us=9.0, evidence=evidence
        )
    assert run(store, SHAPES[:3]) == 0
    assert store.measurements(IDENTITY) == []


def test_what_neighbours_took_reaches_an_untuned_layer_by_the_table(store, tmp_path):
    config = other_config()

    def took(problem):
        default = config_id(heuristic(problem, DEVICE))
        return {"heuristic": default, "ratios": {default: 1.0, config_id(config): 0.8}}

    promoted(store, config, took, ms=(1, 2))
    written = publish(store, tmp_path / "tables")
    table = read_table(written.path)
    assert table == written and b'"schema": 3' in written.path.read_bytes()
    served = lookup(resolve(replace(LAYER, n=112), IDENTITY, table), 1)
    assert (served.source, served.config) == ("transfer", config)
    assert (served.transfer.ratio.median, served.transfer.regret.median) == (0.8, 0.0)
    assert served.record in {winner.id for winner in store.winners()}
    open_task = task(replace(LAYER, n=112))
    workload = Workload("made up", 1, "bf16", (open_task.group,), (), ())
    (row,) = to_json(Tuned(workload, IDENTITY, [open_task], [], 0, table), store)["problems"]
    assert (row["source"], row["us"]) == ("transfer", None)
    assert row["config"] == config_to_dict(config) and row["transfer"]["ratio"]["high"] == 0.8


@pytest.mark.parametrize(
    "nonsense",
    [
        "text",
        {},
        {"heuristic": 1, "ratios": {}},
        {"heuristic": "a", "ratios": [1]},
        {"heuristic": "a", "ratios": {"b": "fast"}},
        {"heuristic": "a", "ratios": {"b": -1.0}},
        {"heuristic": "a", "ratios": {"b": True}},
    ],
)
def test_evidence_that_is_none_of_ours_says_nothing(store, nonsense):
    promoted(store, other_config(), lambda _: nonsense)
    assert all(trials_of(winner) is None for winner in store.winners())
