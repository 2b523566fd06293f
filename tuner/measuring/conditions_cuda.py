"""The conditions of a GPU as NVML tells them: the doorway to pynvml while tuning. What follows from
them is conditions.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from humming.spec.device import Device
from tuner.measuring.conditions import Conditions

THROTTLE = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that make a time worth nothing. The power cap (0x04) is not
one of them: it is the state in which a busy card serves too."""

_POWER_CAP = 0x04


class CudaMonitor:
    """Reads one GPU. Without pynvml, or where the driver does not support a figure, it is None."""

    def __init__(self, device: Device) -> None:
        self._nvml, self._handle = _open(device.uuid)
        self._start = time.perf_counter()

    def begin(self) -> None:
        """Note the time."""
        self._start = time.perf_counter()

    def end(self) -> Conditions:
        """What NVML says now."""
        seconds = round(time.perf_counter() - self._start, 6)
        nvml, handle = self._nvml, self._handle
        if nvml is None:
            return {"seconds": seconds, **dict.fromkeys(_KEYS)}
        ask = _Asked(nvml)
        reasons = ask(
            lambda: getattr(
                nvml,
                "nvmlDeviceGetCurrentClocksEventReasons",
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons,
            )(handle)
        )
        power = ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        return {
            "seconds": seconds,
            "sm_mhz": ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            "memory_mhz": ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            "temperature_c": ask(
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
            ),
            "power_w": None if power is None else power / 1000,
            "throttle": None if reasons is None else throttle_names(reasons),
            "power_capped": None if reasons is None else bool(reasons & _POWER_CAP),
            "other_processes": ask(
                lambda: other_processes(
                    [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
                )
            ),
        }


_KEYS = (
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "power_w",
    "throttle",
    "power_capped",
    "other_processes",
)


def throttle_names(reasons: int) -> list[str]:
    """The names of the reasons in THROTTLE."""
    return [name for bit, name in THROTTLE.items() if reasons & bit]


def other_processes(pids: list[int]) -> int:
    """How many of the processes on a GPU are not this one. In a container NVML shows pids of the
    host, among which ours is one that we do not know."""
    return max(0, len(pids) - 1) if os.getpid() not in pids else len(set(pids) - {os.getpid()})


class _Asked:
    """Calls NVML; None where it refuses."""

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def __call__(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except (self._nvml.NVMLError, AttributeError):
            return None


def _open(uuid: str | None) -> tuple[Any, Any]:
    """pynvml and the GPU's handle; None without the package, the driver or the GPU."""
    try:
        import pynvml
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid or "")
    except pynvml.NVMLError:
        return None, None
