"""NVCC, or a compiler that takes its words, in NVRTC's place where HUMMING_NVCC names one: a
program and options of its own, such as those of a CUDA-compatible accelerator. NVRTC is nvrtc.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit.compiler import Compiler, run_compiler
from humming.jit.source import KERNELS_DIR, KernelSource

FLAGS = ("-cubin", "-std=c++17", "-Xptxas=-v")
"""Options of every compilation, beside the architecture and where headers are."""

_INCLUDE_DIR = KERNELS_DIR / "cuda" / "include"
_VERSION = re.compile(r"\bV(\d+(?:\.\d+)+)")
_ARCHITECTURE = ("-arch", "--gpu-architecture", "-gencode", "--generate-code")


def find_nvcc() -> Compiler | None:
    """The compiler that HUMMING_NVCC names, or None where it is not set.

    Raises CompilerNotFoundError where what it names does not answer to --version.
    """
    words = shlex.split(os.environ.get("HUMMING_NVCC", ""))
    if not words:
        return None
    path = shutil.which(words[0])
    version = None if path is None else _version_of(path, Path(path).stat().st_mtime_ns)
    if path is None or version is None:
        raise CompilerNotFoundError(
            f"HUMMING_NVCC must name a compiler that answers to --version, but got '{words[0]}'; "
            "name nvcc with its folder, or unset it to use NVRTC"
        )
    return Compiler(path, "nvcc", " ".join([version, *words[1:]]), tuple(words[1:]))


def compile_with_nvcc(
    compiler: Compiler, source: KernelSource, arch: str, timeout_s: float
) -> tuple[bytes, str]:
    """The cubin of `source` for `arch`, and what the compiler printed.

    `arch` is left out where the compiler's own options name one. Raises CompileError where it
    refuses, crashes, or takes longer than `timeout_s`.
    """
    own = any(word.startswith(_ARCHITECTURE) for word in compiler.arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="humming-") as folder:
            (Path(folder) / "kernel.cu").write_text(source.text)
            command = [compiler.path, *FLAGS, *([] if own else [f"-arch={arch}"])]
            command += [f"-I{_INCLUDE_DIR}", *compiler.arguments, "-o", "kernel.cubin", "kernel.cu"]
            said = run_compiler(command, folder, timeout_s, name="nvcc")
            return (Path(folder) / "kernel.cubin").read_bytes(), said
    except OSError as error:
        raise CompileError(f"no place to compile in: {error}; set TMPDIR") from error


@lru_cache(maxsize=8)
def _version_of(path: str, _mtime_ns: int) -> str | None:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return None
    numbered = _VERSION.search(done.stdout)
    return numbered[1] if numbered else lines[-1].strip()
