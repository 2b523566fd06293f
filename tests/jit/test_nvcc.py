"""A compiler named by HUMMING_NVCC takes NVRTC's place: found, asked, refused, part of the key."""

from __future__ import annotations

import stat

import pytest

from humming.errors import CompileError, CompilerNotFoundError
from humming.jit.cache import compile_key
from humming.jit.cuda.source import read_probe_source
from humming.jit.nvcc import find_nvcc
from humming.jit.nvrtc import compile_cubin, find_nvrtc

FAKE = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit 0; fi
case "$*" in *--fail*) echo "kernel.cu(1): error: no" >&2; exit 2;; esac
while [ "$1" != -o ]; do words="$words $1"; shift; done
printf 'ELF%s' "$words" > "$2"
echo "ptxas info : Used 12 registers, 8 bytes spill stores"
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """`fake(options)` names a script as the compiler, with options of its own."""
    path = tmp_path / "nvcc"
    path.write_text(FAKE)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)

    def named(options: str = "") -> None:
        monkeypatch.setenv("HUMMING_NVCC", f"{path} {options}")

    return named


def test_it_is_found_and_asked_with_the_architecture_and_the_headers(fake):
    fake()
    assert (find_nvrtc().name, find_nvrtc().version) == ("nvcc", "13.0.88")
    cubin = compile_cubin(read_probe_source(), "sm_90a")
    words = cubin.data.decode()
    assert words.startswith("ELF") and "-arch=sm_90a" in words and "-cubin" in words
    assert "cuda/include" in words
    assert (cubin.registers, cubin.spill_bytes) == (12, 8)


def test_its_own_options_come_along_and_are_a_part_of_the_key(fake):
    fake("--foreign -arch=ppu_1")
    words = compile_cubin(read_probe_source(), "sm_90").data.decode()
    assert "--foreign" in words and "ppu_1" in words and "sm_90" not in words
    with_options = compile_key(read_probe_source(), find_nvrtc(), "sm_90")
    fake()
    assert compile_key(read_probe_source(), find_nvrtc(), "sm_90") != with_options


def test_what_fails_is_told_in_one_sentence(fake, monkeypatch):
    fake("--fail")
    with pytest.raises(CompileError, match="error: no"):
        compile_cubin(read_probe_source(), "sm_90")
    monkeypatch.setenv("HUMMING_NVCC", "/no/such/nvcc")
    with pytest.raises(CompilerNotFoundError, match=r"HUMMING_NVCC must name .*'/no/such/nvcc'"):
        find_nvrtc()


def test_without_the_variable_there_is_none(monkeypatch):
    monkeypatch.delenv("HUMMING_NVCC", raising=False)
    assert find_nvcc() is None
