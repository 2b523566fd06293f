"""Who is measuring or serving here: device, compiler, kernel sources, product, timing policy.

The rules by which two identities compare are spec/identity.py; finding devices is detect.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch

from humming.errors import CompilerNotFoundError
from humming.jit.compiler import find_compiler
from humming.jit.detect import available_threads, cpu_device, find_device
from humming.jit.nvrtc import find_nvrtc
from humming.jit.source_units import source_hash
from humming.spec.device import Device
from humming.spec.identity import POLICIES, Identity
from humming.version import __version__

__all__ = ["here", "serving_device", "serving_device_of", "serving_threads"]

_DRIVER_FILE = Path("/proc/driver/nvidia/version")
# "Kernel Module  550.54" where closed, "Open Kernel Module for x86_64  580.159" where open
_DRIVER_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s")


def here(device: Device | None = None) -> Identity:
    """The identity of this machine with `device` (None: the CPU as this process serves on it).

    Without a compiler its fields are empty: a machine that serves from a ready-made kernel cache
    still finds its tuned records, as stale ones. For CPUs `driver` is empty, since nothing that a
    kernel does there goes through one; for GPUs the compiler is NVRTC.
    """
    device = device or serving_device()
    compiler, version = _compiler(device)
    return Identity(
        device=device,
        driver=cuda_driver() if device.kind == "cuda" else "",
        compiler=compiler,
        compiler_version=version,
        source_hash=source_hash(device.kind),
        product_version=__version__,
        policy=POLICIES[device.kind],
    )


def _compiler(device: Device) -> tuple[str, str]:
    """Name and full version of what compiles for `device`; empty where there is none."""
    try:
        compiler = find_nvrtc() if device.kind == "cuda" else find_compiler()
    except CompilerNotFoundError:
        return "", ""
    return compiler.name, compiler.version


def serving_threads() -> int:
    """How many threads a call uses: torch's setting, within the CPUs that this process may use.

    It is a part of the identity, as a config that is best on two threads need not be on four:
    after `torch.set_num_threads` only records of that number match, else the heuristic serves.
    """
    return max(1, min(torch.get_num_threads(), available_threads()))


def serving_device(threads: int | None = None) -> Device:
    """This CPU with `threads` threads, by default those that torch's setting gives a call."""
    return cpu_device(serving_threads() if threads is None else threads)


def serving_device_of(device: torch.device) -> Device:
    """What serves tensors on `device`, a CPU or CUDA one; without an index it is the current GPU.

    Raises UsageError where there is no such GPU, CompilerNotFoundError without cuda-python.
    """
    if device.type == "cpu":
        return serving_device()
    try:
        import cuda.bindings  # noqa: F401
    except ImportError as error:
        raise CompilerNotFoundError(
            "kernels for CUDA need cuda-python, but it is not installed; "
            "install it with `pip install humming-tune[cu13]` (or [cu12])"
        ) from error
    index = torch.cuda.current_device() if device.index is None else device.index
    return find_device(f"cuda:{index}")


def cuda_driver() -> str:
    """The NVIDIA driver's version, such as "580.65.06"; where only the API's is known, "CUDA 13.0";
    empty without a driver."""
    match = _DRIVER_VERSION.search(_read(_DRIVER_FILE))
    if match:
        return match[1]
    try:
        from cuda.bindings import driver
    except ImportError:
        return ""
    try:
        status, version = driver.cuDriverGetVersion()
    except (RuntimeError, OSError):
        return ""
    return f"CUDA {version // 1000}.{version % 1000 // 10}" if int(status) == 0 and version else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
