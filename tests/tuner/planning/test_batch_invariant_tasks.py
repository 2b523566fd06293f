"""Batch-invariant layers are tuned as problems of their own, at the m that decides their order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from humming.jit.detect import cpu_device
from humming.spec.config import CpuConfig
from humming.spec.invariance import sum_order
from search_spaces.load import load_spaces
from tuner.planning.tasks import make_tasks
from tuner.workload import read_workload

MODEL = Path("examples/models/qwen3-0.6b-int4g128")


def test_every_task_is_batch_invariant_and_every_candidate_has_an_order() -> None:
    workload = read_workload(MODEL, 1, None)
    device = cpu_device(1)
    usual, _ = make_tasks(workload, (1, 16), device, load_spaces())
    tasks, _ = make_tasks(replace(workload, batch_invariant=True), (1, 16), device, load_spaces())
    assert {task.problem.m for task in tasks} == {1}
    assert all(task.problem.batch_invariant for task in tasks)
    assert not {task.problem.layer_id for task in tasks} & {t.problem.layer_id for t in usual}
    for task in tasks[:2]:
        configs = list(task.candidates.configs.values())
        assert configs and all(isinstance(config, CpuConfig) for config in configs)
        assert all(sum_order(config) is not None for config in configs)
