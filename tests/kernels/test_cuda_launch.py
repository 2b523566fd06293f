"""CUDA kernels under graphs, streams and threads, and what they refuse. Needs a GPU."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from cuda_cases import PLAIN, problem
from gpu_cases import case, device, dtypes, kernel, launch, skinny_configs

from humming.errors import KernelLoadError, LaunchError, LayoutError
from humming.jit.bandwidth import read_bandwidth
from humming.jit.cache import compiled
from humming.jit.cuda.load import DequantizeKernel
from humming.jit.detect import cpu_device, find_device
from humming.jit.load import load
from humming.quantize import pack, quantize, unpack
from humming.spec.config import DequantizeConfig
from humming.spec.layouts import CUDA_LAYOUT

pytestmark = pytest.mark.gpu


def _some_configs():
    found = skinny_configs()
    return [found[1], found[6], found[11], found[-1], DequantizeConfig(8, 2, 256)]


def test_replays_of_a_graph_are_equal_to_the_bit():
    dtype = dtypes()[0]
    operands = case(1537, 776, dtype)
    for config in _some_configs():
        loaded, x = kernel(config, dtype), operands.x[: min(config.block_m, 32)]
        first = torch.empty(x.shape[0], 1537, dtype=x.dtype, device="cuda")
        second = torch.empty_like(first)
        room = torch.empty(
            loaded.workspace_bytes(x.shape[0], 1537, 776), dtype=torch.uint8, device="cuda"
        )
        loaded.launch(x, operands.packed, operands.bias, first, room)
        expected = first.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for out in (first, second, first):
                loaded.launch(x, operands.packed, operands.bias, out, room)
        for _ in range(100):
            first.fill_(float("nan"))
            second.fill_(float("nan"))
            graph.replay()
            assert torch.equal(first, expected), str(config)
            assert torch.equal(second, expected), str(config)


def test_a_graph_reads_the_x_that_the_kernel_before_wrote():
    """A dependent launch starts early; x must be waited for."""
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    loaded = kernel(skinny_configs()[6], dtype)
    x = torch.zeros_like(operands.x[:8])
    out = torch.empty(8, 648, dtype=x.dtype, device="cuda")
    launch(loaded, x, operands.packed)
    graph = torch.cuda.CUDAGraph()
    source = operands.x[:8].clone()
    with torch.cuda.graph(graph):
        for _ in range(4):
            loaded.launch(x, operands.packed, None, out)
            x.copy_(source * 0.5)
            loaded.launch(x, operands.packed, None, out)
    expected = launch(loaded, operands.x[:8] * 0.5, operands.packed)
    for _ in range(20):
        x.zero_()
        graph.replay()
        assert torch.equal(out, expected)


def test_streams_and_threads_do_not_meet():
    dtype = dtypes()[0]
    operands = case(4104, 1160, dtype)
    wrong: list[str] = []

    def serve(config, rows: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(30):
                out = launch(kernel(config, dtype), operands.x[:rows], operands.packed)
                if not torch.equal(out, expected[config, rows]):
                    wrong.append(f"{config} m={rows}")

    jobs = [(config, rows) for config in _some_configs() for rows in (1, 7)]
    expected = {
        (config, rows): launch(kernel(config, dtype), operands.x[:rows], operands.packed)
        for config, rows in jobs
    }
    torch.cuda.synchronize()
    threads = [threading.Thread(target=serve, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_weights_just_written_are_read_whole():
    dtype = dtypes()[0]
    operands = case(4104, 1160, dtype)
    loaded = kernel(skinny_configs()[1], dtype)
    expected = launch(loaded, operands.x[:1], operands.packed)
    out = torch.empty(1, 4104, dtype=operands.x.dtype, device="cuda")
    for _ in range(50):
        codes = torch.zeros_like(operands.packed.codes)
        scales = operands.packed.scales.clone()
        codes.copy_(operands.packed.codes)
        fresh = replace(operands.packed, codes=codes, scales=scales)
        loaded.launch(operands.x[:1], fresh, None, out)
        assert torch.equal(out, expected)


def test_nothing_is_loaded_during_a_capture():
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    config = DequantizeConfig(8, 3, 0)
    unloaded = DequantizeKernel(compiled(config, problem(dtype), device()))
    out = torch.empty(1, 648, dtype=operands.x.dtype, device="cuda")
    room = torch.empty(unloaded.workspace_bytes(1, 648, 520), dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.zero_()
        with pytest.raises(LaunchError, match="before a CUDA graph is captured"):
            unloaded.launch(operands.x[:1], operands.packed, None, out, room)


def test_what_does_not_fit_is_refused_in_one_sentence():
    dtype = dtypes()[0]
    operands = case(648, 520, dtype)
    loaded, x, packed = kernel(PLAIN, dtype), operands.x[:4], operands.packed
    out = torch.empty(4, 648, dtype=x.dtype, device="cuda")
    wide = replace(packed, scales=packed.scales.float())
    for bad, says in (
        ((x.float(), packed, None, out), "x must be"),
        ((x[:, ::2], packed, None, out), "x must be"),
        ((x, packed, None, out[:3]), "out must be"),
        ((x, wide, None, out), "scales must have the activations' type"),
        ((x.cpu(), packed, None, out), "on one GPU"),
        ((x, packed, operands.bias[1:], out), "bias must be"),
    ):
        with pytest.raises(LayoutError, match=says):
            loaded.launch(*bad)
    small = torch.empty(8, dtype=torch.uint8, device="cuda")
    with pytest.raises(LaunchError, match="workspace must have"):
        kernel(DequantizeConfig(8, 2, 0), dtype).launch(x, packed, None, out, small)
    with pytest.raises(KernelLoadError, match="cannot be loaded for cpu"):
        load(loaded.compiled, cpu_device(1))


def test_packing_on_the_gpu_gives_the_same_bits():
    w = torch.randn(200, 264).to(torch.bfloat16)
    q = quantize(w)
    here, there = pack(q, CUDA_LAYOUT), pack(q.to("cuda"), CUDA_LAYOUT)
    assert torch.equal(here.codes, there.codes.cpu())
    assert torch.equal(here.scales, there.scales.cpu())
    assert torch.equal(unpack(there).codes.cpu(), q.codes)


def test_the_device_is_found_and_known():
    assert find_device("auto") == find_device("cuda:0") == device()
    used = kernel(PLAIN, dtypes()[0]).resources()
    assert used["registers"] > 16
    assert used["local_bytes"] == 0
    assert 1e11 < read_bandwidth(device()) < 2e13
