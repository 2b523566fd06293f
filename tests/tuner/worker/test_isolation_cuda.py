"""Bad kernels on a GPU, compiled for real: each is an outcome, and the next candidate runs."""

from __future__ import annotations

import pytest

from humming.dispatch.heuristics import heuristic
from humming.jit.cache import compiled
from humming.jit.detect import cuda_devices
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem
from tests.tuner.worker.hostile_cuda import AFTER, BEFORE, hostile_cuda_kernel, hostile_source
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Open, Trial, Trialled

PROBLEM = Problem("int4g128", 1024, 1024, 16, layout=CUDA_LAYOUT)
TIMEOUT_S = 60.0
LOST = ("illegal_access", "trap", "hang")


def config(device) -> SkinnyConfig:
    found = heuristic(PROBLEM, device)
    assert isinstance(found, SkinnyConfig)
    return found


@pytest.fixture(scope="module")
def worker():
    with Worker(cuda_devices()[0]) as worker:
        worker.open(Open(PROBLEM, 5, 33), TIMEOUT_S)
        yield worker


def trial(worker, kernel, timeout_s=TIMEOUT_S):
    device = cuda_devices()[0]
    return worker.ask(Trial(kernel, config(device).block_m), timeout_s)


def passes(worker):
    device = cuda_devices()[0]
    result = trial(worker, compiled(config(device), PROBLEM, device))
    return isinstance(result, Trialled) and result.outcome == "ok" and result.samples_us


@pytest.mark.gpu
def test_a_right_kernel_is_verified_and_timed(worker):
    assert passes(worker)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOST)
def test_a_kernel_that_breaks_its_context_is_an_outcome_and_the_next_one_runs(worker, name):
    device = cuda_devices()[0]
    kernel = hostile_cuda_kernel(name, config(device), PROBLEM, device)
    with pytest.raises(WorkerLostError) as lost:
        trial(worker, kernel, 6.0 if name == "hang" else TIMEOUT_S)
    assert lost.value.outcome == ("timeout" if name == "hang" else "crashed")
    assert passes(worker)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["tail", "silent", "past_out", "racy"])
def test_a_wrong_but_fast_kernel_never_gets_a_time(worker, name):
    device = cuda_devices()[0]
    result = trial(worker, hostile_cuda_kernel(name, config(device), PROBLEM, device))
    assert (result.outcome, result.samples_us) == ("wrong_result", ())
    assert passes(worker)


def test_hostile_sources_are_edits_of_the_real_one():
    from tests.tuner.searching.test_candidates import GPU

    for name in (*BEFORE, *AFTER):
        text = hostile_source(name, config(GPU), PROBLEM).text
        assert {**BEFORE, **AFTER}[name] in text and "block_skinny" in text
