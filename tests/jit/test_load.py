"""Loading and calling: what must not run is refused first, and operands are checked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from humming.errors import KernelLoadError, LaunchError, LayoutError
from humming.jit import load as load_module
from humming.jit.bandwidth import read_bandwidth
from humming.jit.cache import CompiledKernel, compiled
from humming.jit.detect import cpu_device
from humming.jit.load import LoadedKernel, load
from humming.quantize import PackedWeight, pack, quantize
from humming.spec.config import CpuConfig
from humming.spec.problem import Problem

CONFIG = CpuConfig("stream", "generic", 2, 16, 128, 1, 0, 1)


@pytest.fixture(scope="module")
def kernel() -> LoadedKernel:
    device = cpu_device()
    return load(compiled(CONFIG, Problem("int4g128", 20, 96, 1), device), device)


@pytest.fixture(scope="module")
def packed() -> PackedWeight:
    return pack(quantize(torch.ones(20, 96)))


def bf16(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.bfloat16)


def test_a_kernel_is_loaded_once(kernel):
    assert load(kernel.compiled, cpu_device()) is kernel


def test_a_launch_computes(kernel, packed):
    out = bf16(3, 20)
    kernel.launch(torch.ones(3, 96, dtype=torch.bfloat16), packed, torch.ones(20), out)
    assert out.tolist() == [[97.0] * 20] * 3


def test_no_rows_are_no_work(kernel, packed):
    kernel.launch(bf16(0, 96), packed, None, bf16(0, 20))
    assert kernel.workspace_bytes(0, 20, 96) >= 0


@pytest.mark.parametrize(
    "x",
    [bf16(3, 95), bf16(96), torch.zeros(3, 96), bf16(96, 3).T, bf16(3, 192)[:, ::2]],
    ids=["k", "ndim", "dtype", "transposed", "strided"],
)
def test_an_x_that_does_not_fit_is_refused(kernel, packed, x):
    with pytest.raises(LayoutError, match=r"x must be torch\.bfloat16 \[m, 96\]"):
        kernel.launch(x, packed, None, bf16(3, 20))


@pytest.mark.parametrize("out", [bf16(3, 19), bf16(2, 20), torch.zeros(3, 20), bf16(20, 3).T])
def test_an_out_that_does_not_fit_is_refused(kernel, packed, out):
    with pytest.raises(LayoutError, match="out must be"):
        kernel.launch(bf16(3, 96), packed, None, out)


def test_a_bias_that_does_not_fit_is_refused(kernel, packed):
    with pytest.raises(LayoutError, match=r"bias must have shape \[20\]"):
        kernel.launch(bf16(3, 96), packed, torch.zeros(1), bf16(3, 20))


def test_a_workspace_that_is_too_small_is_a_launch_error(kernel, packed):
    with pytest.raises(LaunchError, match="the workspace is too small"):
        kernel.launch(bf16(3, 96), packed, None, bf16(3, 20), torch.empty(8, dtype=torch.uint8))


def test_a_shape_that_the_kernel_cannot_take_is_a_launch_error(kernel, packed):
    with pytest.raises(LaunchError, match="the shape is not one"):
        kernel.launch(bf16(3, 96), packed, None, bf16(3, 20), threads=0)


def test_a_foreign_code_path_is_refused_before_it_is_opened(kernel, monkeypatch, tmp_path):
    source = replace(kernel.compiled.source, static={**kernel.compiled.source.static})
    source.static["code_path"] = "avx512"
    monkeypatch.setattr(load_module, "cpu_flags", lambda: frozenset({"avx2", "fma", "f16c"}))
    absent = CompiledKernel("foreign", tmp_path / "never-opened.so", source, 0.0)
    with pytest.raises(KernelLoadError, match="this CPU lacks avx512bw, avx512dq, avx512f"):
        load(absent, cpu_device())


def test_a_file_that_is_no_library_is_a_load_error(kernel, tmp_path):
    path = tmp_path / "text.so"
    path.write_text("not a library")
    with pytest.raises(KernelLoadError, match="cannot be loaded"):
        load(replace(kernel.compiled, key="text", path=path), cpu_device())


def test_a_gpu_runs_no_cpu_kernel(kernel):
    gpu = replace(cpu_device(), kind="cuda", name="GPU")
    with pytest.raises(KernelLoadError, match="for cuda"):
        load(replace(kernel.compiled, key="gpu"), gpu)


def test_bandwidth_is_that_of_a_memory():
    device = replace(cpu_device(), cache_bytes=8 << 20)
    assert 1e8 < read_bandwidth(device, 1) < 1e13
    assert 1e8 < read_bandwidth(device, 2) < 1e13
