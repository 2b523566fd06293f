"""Finding and running the system's compiler, and compilers that fail in every way."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit.compiler import Compiler, compile_source, find_compiler
from humming.jit.source import KernelSource

SOURCE = KernelSource("cpu", 'extern "C" int answer() { return 42; }\n')


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


def test_no_compiler_at_all(monkeypatch, tmp_path):
    for name in ("HUMMING_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CompilerNotFoundError, match=r"install g\+\+ or clang\+\+"):
        find_compiler()


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
