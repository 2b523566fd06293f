"""Find the devices of this machine and describe them as spec.Device. Nothing is compiled here."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from humming.errors import CompilerNotFoundError, UsageError
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import families_for
from humming.spec.naming import did_you_mean
from humming.spec.problem import Problem

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
_UNKNOWN_CACHE_BYTES = 8 << 20
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cpu_device(threads: int | None = None) -> Device:
    """This machine's CPU. `threads` defaults to the CPUs that this process may run on.

    Raises UsageError unless `threads >= 1`.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"`threads >= 1` must hold, but got threads={threads}")
    caches = _cache_bytes()
    used = {flag for flags in CODE_PATH_FLAGS.values() for flag in flags}
    return Device(
        kind="cpu",
        name=_cpu_name(),
        arch=platform.machine() or "unknown",
        cache_bytes=caches[max(caches)] if caches else _UNKNOWN_CACHE_BYTES,
        isa=tuple(sorted(used & cpu_flags())),
        threads=threads or available_threads(),
        l2_bytes_per_core=caches.get(2),
    )


def available_threads() -> int:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """CPUID flags that this machine's CPU has and its kernel enables, by the names of
    /proc/cpuinfo."""
    return frozenset(_cpuinfo("flags").split())


def cuda_devices() -> list[Device]:
    """NVIDIA GPUs that this process may use, in CUDA's order; empty without driver, package or
    GPU."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return []
    try:
        _cuda(driver.cuInit(0))
        count = int(_cuda(driver.cuDeviceGetCount()))
        return [_cuda_device(driver, index) for index in range(count)]
    except (_CudaError, RuntimeError, OSError):
        return []


def find_device(spec: str = "auto") -> Device:
    """The device that `spec` names: "cpu", "cuda:<index>" as torch counts, or "auto", the first GPU
    on which a family runs, else the CPU.

    Raises UsageError for another spec or a GPU that is not there.
    """
    if spec == "cpu":
        return cpu_device()
    if spec == "auto":
        return next(iter(usable_gpus()), None) or cpu_device()
    kind, _, index = spec.partition(":")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise UsageError(
            f"device must be auto, cpu or cuda:<index>, but got '{spec}'"
            f"{did_you_mean(spec, ('auto', 'cpu', 'cuda:0'))}"
        )
    devices = cuda_devices()
    if int(index or 0) >= len(devices):
        raise UsageError(
            f"device '{spec}' must exist, but CUDA sees {len(devices)} GPUs here; use --device cpu"
        )
    return devices[int(index or 0)]


def usable_gpus() -> list[Device]:
    """The GPUs on which a family runs, where this process has what it takes to serve them."""
    return [gpu for gpu in cuda_devices() if _runs_here(gpu)]


def _runs_here(gpu: Device) -> bool:
    """Whether a family runs on `gpu`, and this process has NVRTC and torch's CUDA for it."""
    import torch

    from humming.jit.nvrtc import find_nvrtc

    problem = Problem("int4g128", 16, 128, 1, "fp16", "fp16", layout=CUDA_LAYOUT)
    if not families_for(problem, gpu) or not torch.cuda.is_available():
        return False
    try:
        find_nvrtc()
    except CompilerNotFoundError:
        return False
    return True


def _cpuinfo(field: str) -> str:
    try:
        lines = _CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == field:
            return value.strip()
    return ""


def _cpu_name() -> str:
    name = _cpuinfo("model name")
    if not name:  # Arm names an implementer and a part instead
        name = f"{_cpuinfo('CPU implementer')} {_cpuinfo('CPU part')}".strip()
    return " ".join((name or platform.processor() or platform.machine() or "CPU").split())


def _cache_bytes() -> dict[int, int]:
    """Level -> bytes of the data or unified cache that the first CPU sees."""
    sizes: dict[int, int] = {}
    for index in sorted(_CACHES.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            size = (index / "size").read_text().strip()
            level = int((index / "level").read_text())
            unit = _UNITS.get(size[-1:], 1)
            sizes[level] = int(size.rstrip("KMG")) * unit
        except (OSError, ValueError):
            continue
    return {level: size for level, size in sizes.items() if size > 0}


class _CudaError(Exception):
    """A CUDA driver call that did not return success."""


def _cuda(result: tuple[Any, ...]) -> Any:
    if int(result[0]) != 0:
        raise _CudaError(str(result[0]))
    return result[1] if len(result) > 1 else None


def _cuda_device(driver: Any, index: int) -> Device:
    handle = _cuda(driver.cuDeviceGet(index))
    names = driver.CUdevice_attribute

    def attribute(name: str) -> int:
        key = getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(_cuda(driver.cuDeviceGetAttribute(key, handle)))

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    raw = _cuda(driver.cuDeviceGetUuid(handle)).bytes.hex()
    parts = (raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])
    uuid = "GPU-" + "-".join(parts)
    return Device(
        kind="cuda",
        name=_cuda(driver.cuDeviceGetName(256, handle)).split(b"\0")[0].decode(),
        arch=f"sm{major}{minor}",
        cache_bytes=attribute("L2_CACHE_SIZE"),
        uuid=uuid,
        compute_capability=(major, minor),
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        smem_bytes_per_block=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_bytes_per_sm=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        memory_clock_khz=attribute("MEMORY_CLOCK_RATE"),
        power_limit_w=_power_limit_w(uuid),
    )


def _power_limit_w(uuid: str) -> int | None:
    """Watts that the GPU may draw, or None without NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            return int(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)) // 1000
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
