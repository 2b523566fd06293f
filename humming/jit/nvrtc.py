"""NVRTC, the CUDA compiler that comes as a library: find it, and run it once on one source in a
child process (cuda/nvrtc_child.py), so that even its crash is an exception here. Keys are cache.py.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit.compiler import Compiler, run_compiler
from humming.jit.nvcc import compile_with_nvcc, find_nvcc
from humming.jit.source import KERNELS_DIR, KernelSource
from humming.spec.device import Device

NVRTC_FLAGS = ("--std=c++17", "--ptxas-options=-v")
"""Options of every compilation, beside the architecture and where headers are."""

_INCLUDE_DIR = KERNELS_DIR / "cuda" / "include"
_CHILD = Path(__file__).with_name("cuda") / "nvrtc_child.py"
_USED = re.compile(r"Used (\d+) registers")
_BYTES = re.compile(r"(\d+) bytes (stack frame|spill stores|spill loads|smem)")


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel, and the report of ptxas on what it uses."""

    data: bytes
    report: str

    @property
    def registers(self) -> int:
        """Of one thread."""
        return max((int(used) for used in _USED.findall(self.report)), default=0)

    @property
    def spill_bytes(self) -> int:
        """Bytes of registers that one thread stores to memory for want of room."""
        return sum(int(b) for b, what in _BYTES.findall(self.report) if what == "spill stores")


def find_nvrtc() -> Compiler:
    """NVRTC as cuda-python finds it: of a wheel, a toolkit, or the system; or the compiler that
    HUMMING_NVCC names in its place.

    Raises CompilerNotFoundError where the package or the library is missing.
    """
    found = find_nvcc() or _nvrtc()
    if found is None:
        raise CompilerNotFoundError(
            "no NVRTC found; install it with `pip install humming-tune[cu13]` (or [cu12] for "
            "drivers older than 580)"
        )
    return found


def nvrtc_arch(source: KernelSource, device: Device) -> str:
    """NVRTC's name of `device`'s architecture, such as sm_90; sm_90a where `source` needs it."""
    major, minor = device.compute_capability or (0, 0)
    return f"sm_{major}{minor}{'a' if 'arch-specific' in source.flags else ''}"


def compile_cubin(source: KernelSource, arch: str, timeout_s: float = 60) -> Cubin:
    """The cubin of `source` for `arch`.

    Raises CompileError with the compiler's errors where it refuses, crashes, or takes longer than
    `timeout_s`.
    """
    named = find_nvcc()
    if named is not None:
        return Cubin(*compile_with_nvcc(named, source, arch, timeout_s))
    try:
        with tempfile.TemporaryDirectory(prefix="humming-") as folder:
            (Path(folder) / "kernel.cu").write_text(source.text)
            options = [*NVRTC_FLAGS, f"--gpu-architecture={arch}", f"-I{_INCLUDE_DIR}"]
            command = [sys.executable, "-S", str(_CHILD), _library(), "kernel.cu", "kernel.cubin"]
            command += options
            report = run_compiler(command, folder, timeout_s, name="NVRTC")
            return Cubin((Path(folder) / "kernel.cubin").read_bytes(), report)
    except OSError as error:
        raise CompileError(f"no place to compile in: {error}; set TMPDIR") from error


@lru_cache(maxsize=1)
def _library() -> str:
    """The file of the NVRTC that find_nvrtc speaks of, which this process has loaded by then."""
    with contextlib.suppress(ImportError):
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return load_nvidia_dynamic_lib("nvrtc").abs_path or "libnvrtc.so"
    maps = Path("/proc/self/maps").read_text().split()  # cuda-python before 12.9 has no pathfinder
    return next((path for path in maps if "/libnvrtc.so" in path), "libnvrtc.so")


@lru_cache(maxsize=1)
def _nvrtc() -> Compiler | None:
    try:
        from cuda.bindings import nvrtc

        error, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    if int(error) != 0:
        return None
    return Compiler("nvrtc", "nvrtc", _full_version(f"{major}.{minor}", int(major)))


def _full_version(version: str, major: int) -> str:
    """`version` with its patch number, where a wheel of that version is installed."""
    for name in ("nvidia-cuda-nvrtc", f"nvidia-cuda-nvrtc-cu{major}"):
        try:
            full = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if full.startswith(f"{version}."):
            return full
    return version
