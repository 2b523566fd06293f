"""Finding and running the system's compiler, and compilers that fail in every way."""

from __future__ import annotations

import ctypes
import tempfile
import time
from pathlib import Path

import pytest
import torch

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit import compiler as compiler_module
from humming.jit import load as load_module
from humming.jit.cache import compiled, compiled_source
from humming.jit.compiler import Compiler, compile_source, find_compiler
from humming.jit.detect import cpu_device
from humming.jit.load import LoadedKernel, open_library
from humming.jit.source import KernelSource, pool_source
from humming.quantize import pack, quantize
from humming.reference import error_bound, matmul_float64
from humming.spec.config import CpuConfig
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.legality import takes
from humming.spec.problem import Problem

SOURCE = KernelSource("cpu", 'extern "C" int answer() { return 42; }\n')
FAKE_ZIG = """#!/bin/sh
if [ "$2" = --version ]; then echo clang version 99; else echo "$@" >> kernel.so; fi
"""


def code_paths_here() -> list[str]:
    device, problem = cpu_device(), Problem("int4g128", 33, 100, 3)
    return [path for path in CODE_PATH_FLAGS if device.supports(path) and takes(path, problem)]


def script(folder: Path, body: str) -> Compiler:
    path = folder / "fake-g++"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return Compiler(str(path), "g++", "fake")


def test_the_compiler_found_runs():
    compiler = find_compiler()
    assert Path(compiler.path).is_file()
    assert compiler.name in ("g++", "clang++")
    assert compiler.version
    library = compile_source(SOURCE, compiler)
    assert library[:4] == b"\x7fELF"


def test_a_compiler_named_by_hand_wins(monkeypatch, tmp_path):
    chosen = script(tmp_path, 'echo "someone\'s clang version 99.1"')
    monkeypatch.setenv("HUMMING_CXX", chosen.path)
    assert find_compiler() == Compiler(chosen.path, "clang++", "someone's clang version 99.1")
    monkeypatch.delenv("HUMMING_CXX")
    monkeypatch.setenv("CXX", f"ccache {chosen.path} -m64")
    assert find_compiler().path == chosen.path


def test_a_compiler_named_by_hand_must_run(monkeypatch, tmp_path):
    for command in ("/no/such/compiler", script(tmp_path, "exit 1").path, "'unbalanced"):
        monkeypatch.setenv("HUMMING_CXX", command)
        with pytest.raises(CompilerNotFoundError, match="HUMMING_CXX must name"):
            find_compiler()


def no_compiler_of_the_system(monkeypatch, tmp_path):
    for name in ("HUMMING_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_no_compiler_at_all(monkeypatch, tmp_path):
    no_compiler_of_the_system(monkeypatch, tmp_path)
    monkeypatch.setattr(compiler_module, "_packaged_zig", lambda: None)
    with pytest.raises(CompilerNotFoundError, match=r"install g\+\+ or clang\+\+.*ziglang"):
        find_compiler()


def test_the_package_ziglang_serves_where_the_system_has_no_compiler(monkeypatch, tmp_path):
    zig = tmp_path / "package" / "zig"
    zig.parent.mkdir()
    zig.write_text(FAKE_ZIG)
    zig.chmod(0o755)
    no_compiler_of_the_system(monkeypatch, tmp_path)
    monkeypatch.setattr(compiler_module, "_packaged_zig", lambda: str(zig))
    compiler = find_compiler()
    assert compiler == Compiler(str(zig), "zig c++", "clang version 99", ("c++",))
    monkeypatch.setenv("HUMMING_CXX", "zig c++")
    assert find_compiler() == compiler
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    compile_, link = compile_source(SOURCE, compiler).decode().splitlines()
    assert compile_.startswith("c++ -O3 ") and "-shared" not in compile_
    assert "-mcpu=baseline" in compile_ and "-mcpu=baseline" in link


@pytest.mark.skipif(not compiler_module._packaged_zig(), reason="ziglang is not installed")
@pytest.mark.parametrize("code_path", code_paths_here())
def test_ziglang_compiles_kernels_that_are_right(monkeypatch, tmp_path, code_path):
    monkeypatch.setenv("HUMMING_CXX", "zig c++")
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    device, problem = cpu_device(), Problem("int4g128", 33, 100, 3)
    config = CpuConfig("stream", code_path, 2, 32, 128, 1, 1024, 1)
    made = compiled(config, problem, device)
    assert made.compile_s > 0
    pool = ctypes.CDLL(str(compiled_source(pool_source(), device.arch).path))
    address = ctypes.cast(pool.humming_parallel_for, ctypes.c_void_p).value
    monkeypatch.setattr(load_module, "parallel_for_address", lambda: address)
    q, x = quantize(torch.randn(33, 100)), torch.randn(3, 100).bfloat16()
    out = torch.empty(3, 33, dtype=torch.bfloat16)
    LoadedKernel(made, open_library(made)).launch(x, pack(q), None, out, threads=2)
    error = (out.double() - matmul_float64(x, q)).abs()
    assert bool((error <= error_bound(x, q, out.dtype)).all())


def test_a_source_with_a_mistake_shows_the_compilers_words():
    with pytest.raises(CompileError, match=r"(?s)failed with exit code.*nonsense"):
        compile_source(KernelSource("cpu", "nonsense;"), find_compiler())


def test_a_compiler_that_is_killed(tmp_path):
    with pytest.raises(CompileError, match="was killed by SIGKILL"):
        compile_source(SOURCE, script(tmp_path, "kill -9 $$"))


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path):
    mark = tmp_path / "alive"
    compiler = script(tmp_path, f"(sleep 3; touch {mark}) & wait")
    start = time.monotonic()
    with pytest.raises(CompileError, match=r"took longer than 0\.3 s"):
        compile_source(SOURCE, compiler, timeout_s=0.3)
    time.sleep(max(0.0, 3.5 - (time.monotonic() - start)))
    assert not mark.exists()


def test_a_compiler_that_writes_nothing_or_is_gone(tmp_path):
    with pytest.raises(CompileError, match="wrote no library"):
        compile_source(SOURCE, script(tmp_path, "exit 0"))
    with pytest.raises(CompileError, match="did not start"):
        compile_source(SOURCE, Compiler(str(tmp_path / "gone"), "g++", "1"))


def test_no_place_to_compile_in(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(CompileError, match="set TMPDIR"):
        compile_source(SOURCE, find_compiler())
