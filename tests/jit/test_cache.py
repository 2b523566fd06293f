"""The kernel cache: whole entries or none, keys by content, and folders that cannot be written."""

from __future__ import annotations

import ctypes
import sys
import threading
from dataclasses import replace

import pytest

from humming.errors import CompilerNotFoundError
from humming.jit.cache import KernelCache, compile_key, compiled, compiled_source, source_key
from humming.jit.compiler import Compiler
from humming.jit.detect import cpu_device
from humming.jit.source import KernelSource
from humming.spec.config import CpuConfig
from humming.spec.problem import Problem

SOURCE = KernelSource("cpu", 'extern "C" int answer() { return 42; }\n', static={})
GXX = Compiler("/usr/bin/g++", "g++", "g++ 12.2")


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def test_an_entry_comes_back_and_loads(own_cache):
    first = compiled_source(SOURCE, "x86_64")
    assert first.path.parent == own_cache
    assert first.compile_s > 0
    again = compiled_source(SOURCE, "x86_64")
    assert (again.key, again.path, again.compile_s) == (first.key, first.path, 0.0)
    assert ctypes.CDLL(str(again.path)).answer() == 42
    assert [p.name for p in own_cache.iterdir()] == [first.path.name]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "text"])
def test_a_damaged_entry_is_removed_and_compiled_anew(own_cache, damage):
    first = compiled_source(SOURCE, "x86_64")
    data = bytearray(first.path.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = {"flipped": bytes(data), "truncated": data[:500], "empty": b"", "text": b"x" * 999}
    first.path.write_bytes(damaged[damage])
    assert KernelCache(own_cache).get(first.key) is None
    assert not first.path.exists()
    again = compiled_source(SOURCE, "x86_64")
    assert again.compile_s > 0
    assert KernelCache(own_cache).get(again.key) == again.path


def test_a_cache_that_cannot_be_written_is_replaced_for_this_process(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("HUMMING_CACHE", str(blocked))
    source = replace(SOURCE, text=SOURCE.text + "// served from a private folder\n")
    first = compiled_source(source, "x86_64")
    assert ctypes.CDLL(str(first.path)).answer() == 42
    assert compiled_source(source, "x86_64").compile_s == 0
    with pytest.raises(OSError, match=r"."):
        KernelCache(blocked / "kernels").put("key", b"library")


def test_a_read_only_cache_with_entries_serves(own_cache):
    first = compiled_source(SOURCE, "x86_64")
    own_cache.chmod(0o500)
    try:
        assert compiled_source(SOURCE, "x86_64").path == first.path
    finally:
        own_cache.chmod(0o700)


def test_a_baked_cache_serves_without_a_compiler(own_cache, monkeypatch, tmp_path):
    first = compiled_source(SOURCE, "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)  # where the extra is installed
    for name in ("HUMMING_CXX", "CXX"):
        monkeypatch.delenv(name, raising=False)
    assert compiled_source(SOURCE, "x86_64").path == first.path
    with pytest.raises(CompilerNotFoundError):
        compiled_source(replace(SOURCE, text="int other;"), "x86_64")


def test_the_key_is_the_content_and_nothing_else():
    key = compile_key(SOURCE, GXX, "x86_64")
    assert key == compile_key(replace(SOURCE, static={"a": 1}), replace(GXX, path="/g++"), "x86_64")
    others = [
        compile_key(replace(SOURCE, text="int a;"), GXX, "x86_64"),
        compile_key(replace(SOURCE, flags=("-mavx2",)), GXX, "x86_64"),
        compile_key(replace(SOURCE, headers=(("a.h", "0"),)), GXX, "x86_64"),
        compile_key(SOURCE, replace(GXX, name="clang++"), "x86_64"),
        compile_key(SOURCE, replace(GXX, version="g++ 13"), "x86_64"),
        compile_key(SOURCE, GXX, "aarch64"),
    ]
    assert len({key, *others}) == 7
    assert key.startswith(source_key(SOURCE, "x86_64"))


def test_writers_at_once_leave_one_whole_entry(tmp_path):
    cache = KernelCache(tmp_path / "kernels")
    writers = [
        threading.Thread(target=lambda: [cache.put("k", b"same" * 5000) for _ in range(20)])
        for _ in range(4)
    ]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        there = (cache.folder / "k.so").exists()
        assert cache.get("k") is not None or not there
    assert [p.name for p in cache.folder.iterdir()] == ["k.so"]


def test_a_config_is_compiled_once_for_all_shapes(own_cache):
    config = CpuConfig("stream", "generic", 1, 16, 128, 1, 0, 1)
    first = compiled(config, Problem("int4g128", 16, 128, 1), cpu_device())
    other = compiled(config, Problem("int4g128", 4096, 4096, 3), cpu_device())
    assert first.key == other.key
    assert other.compile_s == 0
