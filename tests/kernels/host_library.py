"""CUDA headers compiled by the C++ compiler, for a folder that stands in for PTX. No tests here."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from humming.jit.compiler import find_compiler
from humming.jit.cuda.source import INCLUDE_DIR


def host_library(text: str, folder: Path, shim: str, *options: str) -> ctypes.CDLL:
    """`text` with the headers of `shim` ("host_block", "host_ptx") before the kernels' own."""
    (folder / "host.cpp").write_text(text)
    here = Path(__file__).with_name(shim)
    command = [find_compiler().path, "-std=c++17", "-w", "-shared", "-fPIC", *options]
    command += [f"-I{here}", f"-I{INCLUDE_DIR}", "host.cpp", "-o", "host.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "host.so"))
