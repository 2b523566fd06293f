"""The thread pool: many callers, a forked child, more threads than parts."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch

_FORK = """
import os, sys
sys.path[:0] = [{here!r}, {root!r}]
import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch
torch.set_num_threads(1)
loaded, operands = kernel(configs_of(code_paths()[-1])["stream"], "bf16"), case(2880, 96, "bf16")
first = launch(loaded, operands.x, operands.packed, threads=3)
child = os.fork()
same = torch.equal(first, launch(loaded, operands.x, operands.packed, threads=3))
if child == 0:
    os._exit(0 if same else 3)
_, status = os.waitpid(child, 0)
sys.exit(0 if same and status == 0 else 4)
"""


def test_a_forked_child_makes_its_own_pool():
    here = Path(__file__).parent
    script = _FORK.format(here=str(here), root=str(here.parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=120, env=dict(os.environ), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def test_many_callers_at_once_get_their_own_answers():
    loaded = kernel(configs_of(code_paths()[-1])["stream-split"], "bf16")
    operands = case(2880, 2880, "bf16")
    expected = launch(loaded, operands.x[:4], operands.packed)
    wrong: list[int] = []

    def call(index: int) -> None:
        for _ in range(25):
            rows = slice(index, index + 1)
            out = launch(loaded, operands.x[rows], operands.packed, threads=2)
            if not torch.equal(out, expected[rows]):
                wrong.append(index)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


_FOLLOWED = """
import os, pathlib, sys
sys.path[:0] = [{here!r}, {root!r}]
import torch
from kernel_cases import case, code_paths, configs_of, kernel, launch
loaded, operands = kernel(configs_of(code_paths()[-1])["stream"], "bf16"), case(2880, 96, "bf16")
def workers():
    tasks = pathlib.Path("/proc/self/task").glob("*")
    return [t for t in tasks if (t / "comm").read_text().strip() == "humming"]
def masks():
    return [sorted(os.sched_getaffinity(int(t.name))) for t in workers()]
cpus = sorted(os.sched_getaffinity(0))
first = launch(loaded, operands.x, operands.packed, threads=len(cpus) + 3)
assert len(workers()) == len(cpus) - 1, "more threads than CPUs"
os.sched_setaffinity(0, cpus[:1])
assert torch.equal(first, launch(loaded, operands.x, operands.packed, threads=len(cpus)))
assert all(mask == cpus[:1] for mask in masks()), masks()
"""


def test_workers_are_no_more_than_the_cpus_of_the_caller_and_follow_it():
    here = Path(__file__).parent
    script = _FOLLOWED.format(here=str(here), root=str(here.parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", script], timeout=120, env=dict(os.environ), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()


def test_more_threads_than_parts():
    loaded = kernel(configs_of(code_paths()[-1])["stream"], "bf16")
    operands = case(5, 64, "bf16")
    alone = launch(loaded, operands.x, operands.packed)
    for threads in (2, 8, 33):
        assert torch.equal(alone, launch(loaded, operands.x, operands.packed, threads=threads))
