"""What CUDA kernels ask for and enqueue, as far as it can be seen without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from humming.errors import LaunchError, LayoutError
from humming.jit.cache import CompiledKernel, compiled
from humming.jit.cuda import load as loading
from humming.jit.cuda.kernel import CudaKernel
from humming.jit.cuda.load import DequantizeKernel, SkinnyKernel
from humming.jit.source import render
from humming.quantize import QuantizedTensor, pack, quantize
from humming.reference import matmul_float64
from humming.spec.config import DequantizeConfig, KernelConfig, MmaConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_A8_LAYOUT, CUDA_LAYOUT
from humming.spec.problem import Problem

GPU = Device("cuda", "a GPU", "sm90", 50 << 20, compute_capability=(9, 0))
SKINNY = SkinnyConfig(8, 2, 4, 2, 0, 1, 2, 1, 1, 0, 0)
N, K = 72, 136


def kernel_of(config: KernelConfig) -> CompiledKernel:
    problem = Problem("int4g128", N, K, 1, "fp16", "fp16", layout=CUDA_LAYOUT)
    return compiled(config, problem, GPU)


def weight() -> QuantizedTensor:
    generator = torch.Generator().manual_seed(0)
    return quantize(torch.randn(N, K, generator=generator).to(torch.float16))


class Recorder:
    """Stands for a function on a GPU: writes down its launches and computes nothing."""

    def __init__(self) -> None:
        self.launches: list[tuple[tuple[int, int], int, tuple[int, ...], int, bool]] = []

    def launch(self, grid, threads, values, types, cluster=1, dependent=False):
        assert len(values) == len(types)
        self.launches.append((grid, threads, values, cluster, dependent))


def enqueue(kernel, x, bias=None, workspace=None):
    recorder, packed = Recorder(), pack(weight(), CUDA_LAYOUT)
    out = torch.zeros(x.shape[0], N, dtype=torch.float16)
    kernel._enqueue(recorder, x, packed, bias, out, workspace)
    return recorder.launches, packed, out


def test_skinny_asks_for_no_workspace_and_launches_once():
    kernel = SkinnyKernel(kernel_of(SKINNY))
    assert kernel.workspace_bytes(8, N, K) == 0
    x = torch.randn(20, K + 8).to(torch.float16)[:, :K]
    launches, packed, _ = enqueue(kernel, x, torch.ones(N))
    ((grid, threads, values, cluster, dependent),) = launches
    assert grid == (3, 3 * 2)  # passes of 8 rows, tiles of 32 rows of w by two blocks a cluster
    assert (threads, cluster) == (128, 2)
    assert not dependent  # these weights were never launched before
    assert values[0] == x.data_ptr()
    assert values[1:3] == (packed.codes.data_ptr(), packed.scales.data_ptr())
    assert values[3:6] == (0, 0, 0)  # no zero points, row scales or act-order
    assert values[8:] == (20, N, K, K + 8, N)


def test_rows_that_begin_at_odd_places_are_copied():
    kernel = SkinnyKernel(kernel_of(SKINNY))
    x = torch.randn(4, K + 7).to(torch.float16)[:, 3 : 3 + K]
    (launch,), _, _ = enqueue(kernel, x)
    assert launch[2][0] != x.data_ptr()
    assert launch[2][0] % 16 == 0
    assert launch[2][6] == 0  # no bias
    assert launch[2][11] == K


@pytest.mark.parametrize("panel_n", [0, 16, 48, 4096])
def test_panels_cover_the_weight_and_the_product_is_torchs(panel_n):
    kernel = DequantizeKernel(kernel_of(DequantizeConfig(2, 1, panel_n)))
    rows = min(panel_n or N, N)
    assert kernel.workspace_bytes(300, N, K) == rows * K * 2
    x, bias = torch.randn(5, K).to(torch.float16), torch.randn(N)
    room = torch.zeros(rows * K * 2, dtype=torch.uint8)
    launches, packed, out = enqueue(kernel, x, bias, room)
    assert sum(launch[2][5] for launch in launches) == N
    at = 0
    for grid, threads, values, _, _ in launches:
        assert threads == 64
        assert grid == (2, -(-values[5] // 16))
        assert values[0] == packed.codes.data_ptr() + at // 16 * 4 * 512
        assert values[1] == packed.scales.data_ptr() + at // 16 * 2 * 32
        assert values[2:5] == (0, 0, room.data_ptr())
        assert values[6:] == (K, K)
        at += values[5]
    assert torch.equal(out, bias.to(torch.float16).expand(5, N))  # of weights that are zero


def test_a_weight_must_have_what_its_kernel_was_compiled_for():
    kernel, packed = SkinnyKernel(kernel_of(SKINNY)), pack(weight(), CUDA_LAYOUT)
    other = pack(quantize(torch.randn(N, K).to(torch.float16), "int4"), CUDA_LAYOUT, torch.float16)
    with pytest.raises(LayoutError, match="must come without row_scales; pack it"):
        kernel._check_parts(other)
    with pytest.raises(LayoutError, match="compiled without act-order"):
        kernel._check_parts(replace(packed, permutation=torch.arange(K, dtype=torch.int32)))
    with pytest.raises(LayoutError, match="multiple of 16 bytes"):
        kernel._check_parts(replace(packed, codes=packed.codes.view(-1)[1:]))
    kernel._check_parts(packed)


def test_rows_of_any_length_are_read_where_they_are():
    problem = Problem("int4g128", N, K - 1, 1, "fp16", "fp16", layout=CUDA_LAYOUT, act_order=True)
    kernel = SkinnyKernel(compiled(SKINNY, problem, GPU))
    q = quantize(torch.randn(N, K - 1).to(torch.float16))
    q = replace(q, permutation=torch.arange(K - 1, dtype=torch.int32))
    x, packed, recorder = (
        torch.randn(4, K).to(torch.float16)[:, 1:],
        pack(q, CUDA_LAYOUT),
        Recorder(),
    )
    kernel._enqueue(recorder, x, packed, None, torch.zeros(4, N, dtype=torch.float16), None)
    ((_, _, values, _, _),) = recorder.launches
    assert values[0] == x.data_ptr()
    assert values[5] == packed.permutation.data_ptr()


def test_one_panel_times_x_is_the_layers_product():
    kernel = DequantizeKernel(kernel_of(DequantizeConfig(2, 1, 0)))
    q, x = weight(), torch.randn(5, K).to(torch.float16)
    room = q.dequantize(torch.float16).view(torch.uint8).view(-1)
    _, _, out = enqueue(kernel, x, None, room)
    answer = matmul_float64(x, q)
    assert float((out.double() - answer).norm() / answer.norm()) < 1e-3


def test_operands_are_checked_before_a_gpu_is_asked():
    kernel, packed = SkinnyKernel(kernel_of(SKINNY)), pack(weight(), CUDA_LAYOUT)
    x, out = torch.zeros(2, K, dtype=torch.float16), torch.zeros(2, N, dtype=torch.float16)
    with pytest.raises(LayoutError, match="must be on one GPU"):
        kernel.launch(x, packed, None, out)
    with pytest.raises(LayoutError, match="x must be"):
        kernel.launch(x.float(), packed, None, out)
    with pytest.raises(LayoutError, match="out must be"):
        kernel.launch(x, packed, None, out[:1])
    small = torch.zeros(8, dtype=torch.uint8)
    with pytest.raises(LaunchError, match="workspace must have"):
        enqueue(DequantizeKernel(kernel_of(DequantizeConfig(2, 1, 0))), x, None, small)


def test_formats_that_share_a_cubin_quantize_x_each_in_its_own_way(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "device_index", lambda _: 0)
    monkeypatch.setattr(CudaKernel, "function", lambda _self, _index: None)
    config = MmaConfig(32, 64, 128, 1, 4, 1, 2, 1, 0, 0, 8, 1, 0)
    sources = [
        render(config, Problem(format, 64, 128, 1, layout=CUDA_A8_LAYOUT))
        for format in ("int4-int8", "int4-int4")
    ]
    assert sources[0].text == sources[1].text
    kernels = [
        loading.load_cuda(CompiledKernel("key", tmp_path, source, 0.0), GPU) for source in sources
    ]
    assert [kernel.input.recipe.activation for kernel in kernels] == ["int8", "int4"]
