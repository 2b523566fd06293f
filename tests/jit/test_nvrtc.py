"""NVRTC in a child process: what it makes, what it is asked for, and that it may refuse or die."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from humming.errors import (
    CompileError,
    CompilerNotFoundError,
    FormatError,
    KernelLoadError,
    LegalityError,
)
from humming.jit import cache, nvrtc
from humming.jit.cache import KernelCache, compile_key, compiled, read_library, source_key
from humming.jit.compiler import Compiler
from humming.jit.load import load
from humming.jit.source import KernelSource, render
from humming.spec.config import CpuConfig, DequantizeConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem

GPU = Device("cuda", "a GPU", "sm90", 50 << 20, compute_capability=(9, 0))
PROBLEM = Problem("int4g128", 64, 128, 1, layout=CUDA_LAYOUT)
CONFIG = DequantizeConfig(4, 1, 0)
SKINNY = SkinnyConfig(16, 2, 4, 1, 2, 1, 2, 1, 1, 1, 0)


def source_of(text: str) -> KernelSource:
    return KernelSource("skinny", text, "cuda")


def test_a_kernel_is_compiled_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path))
    first, again = compiled(CONFIG, PROBLEM, GPU), compiled(CONFIG, PROBLEM, GPU)
    assert first.compile_s > 0
    assert again.compile_s == 0
    assert (again.key, again.path) == (first.key, first.path)
    assert first.path.suffix == ".cubin"
    assert read_library(first.path).startswith(b"\x7fELF")
    assert first.source.static["activation_dtype"] == "bf16"


def test_a_damaged_cubin_is_compiled_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path))
    path = compiled(CONFIG, PROBLEM, GPU).path
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(OSError, match="damaged"):
        read_library(path)
    assert compiled(CONFIG, PROBLEM, GPU).compile_s > 0


def test_a_machine_without_nvrtc_serves_what_is_cached(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path))
    key = compiled(CONFIG, PROBLEM, GPU).key

    def none() -> Compiler:
        raise CompilerNotFoundError("no NVRTC found")

    monkeypatch.setattr(cache.nvrtc, "find_nvrtc", none)
    assert compiled(CONFIG, PROBLEM, GPU).key == key
    with pytest.raises(CompilerNotFoundError):
        compiled(replace(CONFIG, unroll=2), PROBLEM, GPU)


def test_keys_depend_on_content_architecture_and_version():
    source, compiler = render(CONFIG, PROBLEM), nvrtc.find_nvrtc()
    assert compiler.name == "nvrtc"
    assert compiler.version.count(".") >= 1
    assert source_key(source, "sm_90") != source_key(source, "sm_80")
    newer = replace(compiler, version="99.0")
    assert compile_key(source, compiler, "sm_90") != compile_key(source, newer, "sm_90")
    assert source_key(render(CONFIG, replace(PROBLEM, n=4096, k=8, m=9, bias=True)), "sm_90") == (
        source_key(source, "sm_90")
    )


def test_kinds_of_kernels_share_a_folder_but_no_entries(tmp_path):
    libraries, cubins = KernelCache(tmp_path), KernelCache(tmp_path, ".cubin")
    cubins.put("a-b", b"cubin")
    assert libraries.get("a-b") is None
    assert cubins.find("a") == ("a-b", tmp_path / "a-b.cubin")


def test_the_architecture_is_the_devices_and_the_specific_one_for_warpgroups():
    assert nvrtc.nvrtc_arch(render(CONFIG, PROBLEM), GPU) == "sm_90"
    assert nvrtc.nvrtc_arch(render(SKINNY, PROBLEM), GPU) == "sm_90a"
    newest = replace(GPU, compute_capability=(12, 1))
    assert nvrtc.nvrtc_arch(render(CONFIG, PROBLEM), newest) == "sm_121"


def test_what_cannot_be_rendered_is_refused():
    with pytest.raises(FormatError, match=r"'skinny' renders .* a multiple of 8.*got 'int4g20'"):
        render(SKINNY, replace(PROBLEM, format="int4g20"))
    with pytest.raises(FormatError, match="reads layout 'cuda_n16k64', but got 'cuda_n16k64_a8'"):
        render(SKINNY, replace(PROBLEM, format="int8-int8", layout="cuda_n16k64_a8"))
    fp32 = replace(PROBLEM, activation_dtype="fp32", output_dtype="fp32")
    with pytest.raises(LegalityError, match="bf16 or fp16 activations"):
        render(SKINNY, fp32)
    assert render(CpuConfig("stream", "generic", 1, 32, 128, 2, 0, 1), fp32).language == "c++"


def test_rendered_text_has_named_constants_and_only_its_own_headers():
    source = render(SKINNY, PROBLEM)
    for line in ("tiles_n = 2;", "split_k = 1;", "using Activation = Bf16;", "warpgroup = 1;"):
        assert line in source.text
    assert "{{" not in source.text
    names = [name for name, _ in source.headers]
    assert "humming/memory/warpgroup_plan.cuh" in names
    assert "humming/memory/skinny_plan.cuh" not in names
    assert "humming/ptx/types.cuh" in names  # included by headers alone
    assert source.static["smem_bytes"] > 0


def test_a_gpu_that_is_not_here_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path))
    nowhere = replace(GPU, uuid="GPU-00000000-0000-0000-0000-000000000000")
    with pytest.raises(KernelLoadError, match=r"NVIDIA driver|not one that CUDA sees"):
        load(compiled(CONFIG, PROBLEM, nowhere), nowhere)
    with pytest.raises(KernelLoadError, match="cannot be loaded for cpu"):
        load(compiled(CONFIG, PROBLEM, nowhere), Device("cpu", "a CPU", "x86_64", 1))


def test_an_error_is_told_with_its_line():
    with pytest.raises(CompileError, match=r"(?s)NVRTC failed.*kernel\.cu\(2\): error: identifier"):
        nvrtc.compile_cubin(
            source_of('extern "C" __global__ void f() {\n  nonsense();\n}\n'), "sm_90"
        )
    with pytest.raises(CompileError, match="NVRTC failed"):
        nvrtc.compile_cubin(source_of('extern "C" __global__ void f() {}\n'), "sm_33")


def test_a_library_that_does_not_look_beside_itself_compiles(tmp_path):
    nvrtc.find_nvrtc()
    library = Path(nvrtc._library())
    blind = tmp_path / library.name
    blind.write_bytes(library.read_bytes().replace(b"\0$ORIGIN\0", b"\0/absent\0"))
    for beside in library.parent.glob("libnvrtc-builtins.so*"):
        (tmp_path / beside.name).symlink_to(beside)
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void kernel() {}')
    child = [sys.executable, "-S", str(nvrtc._CHILD), str(blind), "kernel.cu", "kernel.cubin"]
    done = subprocess.run(
        [*child, "--gpu-architecture=sm_90"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "kernel.cubin").stat().st_size > 0


def test_a_hang_is_ended():
    endless = "template <int n> struct A { A<n + 1> next; };\n"  # no end until memory is gone
    text = "__device__ constexpr int f(int n) {\n"
    text += "  int s = 0; for (int i = 0; i < n; ++i) s ^= i; return s; }\n"
    text += "".join(f"static_assert(f(900000 + {i}) != -1);\n" for i in range(2000))
    with pytest.raises(CompileError, match=r"NVRTC took longer than 0\.5 s"):
        nvrtc.compile_cubin(source_of(text + endless), "sm_90", timeout_s=0.5)


def test_a_crash_is_an_error_here():
    deep = "int x = " + "(" * 200_000 + "1" + ")" * 200_000 + ";\n"
    with pytest.raises(CompileError, match=r"NVRTC (was killed by SIG|failed)"):
        nvrtc.compile_cubin(source_of(deep), "sm_90")
