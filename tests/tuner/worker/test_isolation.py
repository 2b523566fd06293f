"""A candidate that crashes, hangs or cheats is an outcome; the worker is replaced and the next
candidate runs as ever."""

import os
import signal
import time
from pathlib import Path

import pytest

from humming.dispatch.heuristics import heuristic
from humming.errors import HummingError
from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.spec.problem import Problem
from tests.tuner.worker.hostile import BODIES, edited_kernel, hostile_kernel
from tuner.worker import isolation
from tuner.worker.isolation import Worker, WorkerLostError
from tuner.worker.messages import Baseline, Open, Race, Raced, Trial, Trialled

PROBLEM = Problem("int4g128", n=40, k=96, m=5, activation_dtype="fp32", output_dtype="fp32")
DEVICE = cpu_device(2)
CONFIG = heuristic(PROBLEM, DEVICE)
TIMEOUT_S = 60.0

TAIL = """extern "C" int32_t humming_gemm(const humming::GemmArgs* a) {
  int32_t status = real_gemm(a);
  if (a->m % 4 == 3) ((float*)a->out)[a->n - 1] += 1.0f;
  return status;
}"""
RACY = """static int calls = 0;
extern "C" int32_t humming_gemm(const humming::GemmArgs* a) {
  int32_t status = real_gemm(a);
  if (a->m > 0 && ++calls % 2) ((float*)a->out)[0] *= 1.0000002f;
  return status;
}"""


@pytest.fixture(scope="module")
def worker():
    with Worker(DEVICE) as worker:
        worker.open(Open(PROBLEM, 2, 21), TIMEOUT_S)
        yield worker


def trial(worker, kernel, timeout_s=TIMEOUT_S):
    return worker.ask(Trial(kernel, CONFIG.block_m), timeout_s)


def passes(worker):
    result = trial(worker, compiled(CONFIG, PROBLEM, DEVICE))
    return isinstance(result, Trialled) and result.outcome == "ok" and result.samples_us


def test_a_right_kernel_is_verified_and_timed(worker):
    result = trial(worker, compiled(CONFIG, PROBLEM, DEVICE))
    assert result.outcome == "ok"
    assert 0.0 < result.error <= 1.0
    assert len(result.samples_us) >= 3 and min(result.samples_us) > 0


@pytest.mark.parametrize("name", ["segfault", "abort", "exit"])
def test_a_dying_candidate_is_an_outcome_and_the_next_one_runs(worker, name):
    with pytest.raises(WorkerLostError) as lost:
        trial(worker, hostile_kernel(name, DEVICE))
    assert lost.value.outcome == "crashed"
    assert {"segfault": "SIGSEGV", "abort": "SIG", "exit": "code 7"}[name] in str(lost.value)
    assert passes(worker)


def test_a_hanging_candidate_is_killed_and_the_next_one_runs(worker):
    with pytest.raises(WorkerLostError) as lost:
        trial(worker, hostile_kernel("hang", DEVICE), timeout_s=2.0)
    assert lost.value.outcome == "timeout"
    assert passes(worker)


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("nothing", "nan"),
        ("zeros", "expected"),
        ("past_out", "outside its output"),
        ("past_workspace", "behind its workspace"),
    ],
)
def test_wrong_numbers_and_stray_writes_never_get_a_time(worker, name, detail):
    result = trial(worker, hostile_kernel(name, DEVICE))
    assert (result.outcome, result.samples_us) == ("wrong_result", ())
    assert detail in result.detail


@pytest.mark.parametrize(("wrapper", "detail"), [(TAIL, "m="), (RACY, "two runs differ")])
def test_a_kernel_wrong_on_tails_or_now_and_then_never_gets_a_time(worker, wrapper, detail):
    result = trial(worker, edited_kernel(CONFIG, PROBLEM, DEVICE, wrapper))
    assert (result.outcome, result.samples_us) == ("wrong_result", ())
    assert detail in result.detail


def test_a_failing_launch_is_an_outcome(worker):
    result = trial(worker, hostile_kernel("status", DEVICE))
    assert (result.outcome, result.samples_us) == ("launch_error", ())
    assert "status 9" in result.detail


def test_baseline_and_race(worker):
    kernel = compiled(CONFIG, PROBLEM, DEVICE)
    assert worker.ask(Baseline(), TIMEOUT_S).outcome == "ok"
    raced = worker.ask(Race((kernel, kernel), 5, 10.0, 5), TIMEOUT_S)
    assert isinstance(raced, Raced)
    assert [len(side) for side in raced.samples_us] == [5, 5]


def test_a_worker_killed_from_outside_is_replaced(worker):
    assert passes(worker)
    worker._process.kill()
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        passes(worker)
    assert passes(worker)


@pytest.mark.parametrize("kills", [2, 3])
def test_a_worker_killed_as_it_starts_starts_again(kills, monkeypatch):
    begun, begin = [], isolation.subprocess.Popen

    def short_lived(*arguments, **options):
        process = begin(*arguments, **options)
        begun.append(process)
        if len(begun) <= kills:
            process.kill()
        return process

    monkeypatch.setattr(isolation.subprocess, "Popen", short_lived)
    with Worker(DEVICE) as fresh:
        if kills == isolation.STARTS:
            with pytest.raises(HummingError, match="does not start: the worker died by SIGKILL"):
                fresh.open(Open(PROBLEM, 2, 21), TIMEOUT_S)
        fresh.open(Open(PROBLEM, 2, 21), TIMEOUT_S)
        assert fresh._starts == 0 and len(begun) == kills + 1


def test_a_request_without_an_open_problem_is_refused():
    with Worker(DEVICE) as fresh, pytest.raises(HummingError, match="needs an open problem"):
        fresh.ask(Baseline(), TIMEOUT_S)


def test_the_worker_dies_with_its_parent():
    read_end, write_end = os.pipe()
    parent = os.fork()
    if parent == 0:  # a tuner that is killed while its worker lives
        worker = Worker(DEVICE)
        worker.open(Open(PROBLEM, 2, 21), TIMEOUT_S)
        os.write(write_end, str(worker._process.pid).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    orphan = Path(f"/proc/{int(os.read(read_end, 20))}")
    deadline = time.monotonic() + 10
    while _alive(orphan) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _alive(orphan)


def _alive(process: Path) -> bool:
    """Running, and no zombie that nobody reaped."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_every_hostile_body_is_used():
    used = {"segfault", "abort", "exit", "hang", "nothing", "zeros", "past_out", "past_workspace"}
    assert used | {"status"} == set(BODIES)
