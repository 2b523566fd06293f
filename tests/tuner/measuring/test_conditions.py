"""Conditions are noted, foul ones are named, and rounds under foul ones promote nothing."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from humming.spec.device import Device
from tuner.measuring import conditions_cuda
from tuner.measuring.conditions import CpuMonitor, clean_rounds, foul, marked, monitor_for
from tuner.measuring.conditions_cuda import CudaMonitor, other_processes, throttle_names
from tuner.promoting import finals
from tuner.worker.messages import Raced

CALM = {"waited_share": 0.001, "foreign_share": 0.1, "preemptions": 1}
BUSY = {"waited_share": 0.2, "foreign_share": 0.1, "preemptions": 9}
HOT = {"throttle": ["hardware thermal slowdown"], "other_processes": 0}
GPU = Device("cuda", "a GPU", "sm90", 50 << 20, uuid="GPU-1")


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        (CALM, None),
        ({}, None),
        (dict.fromkeys(CALM), None),
        (BUSY, "threads waited 20%"),
        ({**CALM, "foreign_share": 0.9}, "kept 90% of the cores busy"),
        (HOT, "throttled (hardware thermal slowdown)"),
        ({"throttle": [], "other_processes": 2}, "2 other processes"),
        ({"throttle": None, "other_processes": None, "sm_mhz": None}, None),
    ],
)
def test_what_is_foul(conditions, why):
    assert foul(conditions) is None if why is None else why in foul(conditions)
    assert ("foul" in marked(conditions)) == (why is not None)


def test_only_clean_rounds_are_kept():
    rounds = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert clean_rounds(rounds, [CALM, BUSY, CALM]) == [[1.0, 3.0], [4.0, 6.0]]
    assert clean_rounds(rounds, [BUSY] * 3) == [[], []]
    assert clean_rounds(rounds, []) == rounds


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_a_process_on_our_core_is_seen():
    cpus = os.sched_getaffinity(0)
    monitor = monitor_for(Device("cpu", "a CPU", "x86_64", 1 << 20))
    assert isinstance(monitor, CpuMonitor)
    core = min(cpus)
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    rival = subprocess.Popen([sys.executable, "-c", code])
    try:
        os.sched_setaffinity(0, {core})
        time.sleep(0.3)  # let it begin
        monitor.begin()
        spin(0.5)
        seen = monitor.end()
    finally:
        os.sched_setaffinity(0, cpus)
        rival.kill()
        rival.wait()
    assert seen["seconds"] >= 0.5
    if seen["waited_share"] is None:
        pytest.skip("this kernel does not say how long threads wait")
    assert seen["waited_share"] > 0.1
    assert "threads waited" in foul(seen)


def finalists(gain, conditions):
    """A final in which the challenger takes `gain` of the incumbent's time."""
    rounds = len(conditions)
    return Raced(((100.0,) * rounds, (100.0 * gain,) * rounds), tuple(conditions))


def verdict(raced):
    notes = []
    problem = SimpleNamespace(n=1, k=2, m=3)
    watch = SimpleNamespace(note=notes.append)
    scope = SimpleNamespace(task=SimpleNamespace(problem=problem), watch=watch)
    return finals._verdict(scope, raced).winner, notes


def test_contended_and_throttled_rounds_promote_nothing():
    assert verdict(finalists(0.5, [CALM] * 12)) == (1, [])
    assert verdict(finalists(0.5, [CALM] * 8 + [BUSY] * 4)) == (1, [])
    for bad in (BUSY, HOT):
        winner, notes = verdict(finalists(0.5, [CALM] * 4 + [bad] * 8))
        assert winner == 0
        assert "8 of 12 rounds" in notes[0] and "--continue" in notes[0]
    assert verdict(finalists(0.5, [BUSY] * 12))[0] == 0


def fake_nvml(**answers):
    class NVMLError(Exception):
        pass

    def refused(*_):
        raise NVMLError("Not Supported")

    names = (
        *("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetPowerUsage"),
        *("nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperature"),
        *("nvmlDeviceGetComputeRunningProcesses",),
    )
    functions = {name: answers.get(name, refused) for name in names}
    constants = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    return SimpleNamespace(NVMLError=NVMLError, **constants, **functions)


def test_a_gpu_is_asked_and_what_it_does_not_say_is_none(monkeypatch):
    nvml = fake_nvml(
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda _: 0x44,
        nvmlDeviceGetPowerUsage=lambda _: 650_500,
        nvmlDeviceGetClockInfo=lambda _, kind: {1: 1980, 2: 3201}[kind],
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=os.getpid())],
    )
    monkeypatch.setattr(conditions_cuda, "_open", lambda uuid: (nvml, uuid))
    monitor = CudaMonitor(GPU)
    monitor.begin()
    seen = monitor.end()
    assert (seen["sm_mhz"], seen["memory_mhz"], seen["power_w"]) == (1980, 3201, 650.5)
    assert seen["temperature_c"] is None and seen["power_capped"] is True
    assert seen["throttle"] == ["hardware thermal slowdown"] and "throttled" in foul(seen)


def test_without_nvml_all_is_none(monkeypatch):
    monkeypatch.setattr(conditions_cuda, "_open", lambda uuid: (None, None))
    seen = CudaMonitor(GPU).end()
    assert {value for name, value in seen.items() if name != "seconds"} == {None}
    assert foul(seen) is None


def test_a_missing_gpu_is_no_error():
    assert CudaMonitor(GPU).end()["sm_mhz"] is None


def test_names_and_other_processes():
    assert throttle_names(0x04) == []  # the power cap
    assert throttle_names(0x88) == ["hardware slowdown", "power brake"]
    assert other_processes([]) == 0
    assert other_processes([os.getpid(), 1]) == 1
    assert other_processes([4321]) == 0  # ours by another name space's number
    assert other_processes([4321, 4322]) == 1
