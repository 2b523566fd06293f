"""The family wgmma gives the right numbers, bitwise equal, and leaves its counters at zero."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache

import pytest
import torch
from cuda_cases import problem
from gpu_cases import compile_all, device, dtypes, kernel, launch, relative_error
from wgmma_cases import HOPPER, PLAIN_WGMMA, wgmma_configs

from humming.errors import LaunchError
from humming.jit.cuda import counters
from humming.jit.load import TORCH_DTYPES
from humming.quantize import QuantizedTensor, pack
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import families_for

pytestmark = pytest.mark.gpu

SHAPES = [(1, 24, 8), (70, 648, 520), (300, 1000, 1000), (513, 4104, 1160), (33, 8200, 4096)]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    if device().compute_capability != HOPPER:
        pytest.fail("the family wgmma needs compute capability 9.0; deselect its tests here")
    compile_all([(config, dtype) for config in wgmma_configs() for dtype in dtypes()])


@lru_cache(maxsize=32)
def _operands(m, n, k, dtype):
    of = TORCH_DTYPES[dtype]
    generator = torch.Generator(device="cuda").manual_seed(m * 7919 + n * 31 + k)

    def normal(*shape):
        return torch.randn(*shape, device="cuda", generator=generator).to(of)

    codes = torch.randint(-8, 8, (n, k), dtype=torch.int8, device="cuda", generator=generator)
    scales = torch.rand(n, -(-k // 128), device="cuda", generator=generator) * 0.02 + 0.002
    q = QuantizedTensor("int4g128", codes, scales.to(of))
    x, bias = normal(m, k + 16)[:, 8 : 8 + k], normal(n).float()
    answer = x.double() @ q.dequantize().T + bias.double()
    theirs = torch.nn.functional.linear(x.contiguous(), q.dequantize(of), bias.to(of))
    return x, pack(q, CUDA_LAYOUT), bias, answer, relative_error(theirs, answer)


def _configs(k):
    """Those that have columns of k for every block."""
    return [config for config in wgmma_configs() if config.split_k <= -(-k // 128)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_every_config_is_right_for_odd_shapes(m, n, k):
    for dtype in dtypes():
        x, packed, bias, answer, theirs = _operands(m, n, k, dtype)
        for config in _configs(k):
            first = launch(kernel(config, dtype), x, packed, bias)
            again = launch(kernel(config, dtype), x, packed, bias)
            assert torch.equal(first, again), f"{config} {dtype}"
            ours = relative_error(first, answer)
            limit = 1.1 * theirs if first.numel() >= 256 else 2 * theirs + 1e-3
            assert ours <= limit, f"{config} {dtype}: {ours:.2e}, torch {theirs:.2e}"
        for words in (*counters._EAGER.values(), *counters._CAPTURED.values()):
            assert not bool(words.any())


def test_captured_graphs_share_no_counters():
    dtype = dtypes()[0]
    x, packed, bias, _, _ = _operands(70, 648, 520, dtype)
    config = next(c for c in wgmma_configs() if c.stream_k and c.cluster_n == 1)
    loaded = kernel(config, dtype)
    expected = launch(loaded, x, packed, bias)
    before, outs, graphs = set(counters._CAPTURED), [], []
    for _ in range(2):
        out, graph = torch.empty_like(expected), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(3):
                loaded.launch(x, packed, bias, out)
        outs.append(out)
        graphs.append(graph)
    for _ in range(5):
        for out, graph in zip(outs, graphs, strict=True):
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, expected)
    assert len(set(counters._CAPTURED) - before) in (0, 2)


@pytest.mark.parametrize("m", [70, 300])
def test_the_copy_engine_stores_what_threads_do(m):
    n, k, dtype = 648, 520, dtypes()[0]
    x, packed, bias, _, _ = _operands(m, n, k, dtype)
    for config in (c for c in _configs(k) if c.num_stores > 1):
        expected = launch(kernel(config, dtype), x, packed, bias)
        canvas = torch.full((m + 2, n + 16), float("nan"), dtype=x.dtype, device="cuda")
        out = canvas[1 : m + 1, 8 : n + 8]  # rows at whole multiples of 16 bytes
        kernel(config, dtype).launch(x, packed, bias, out)
        assert torch.equal(out, expected), str(config)
        out.fill_(float("nan"))
        assert bool(canvas.isnan().all()), f"{config} wrote outside its output"


@pytest.mark.parametrize("m", [0, 1, 65536])
def test_the_fewest_and_very_many_rows(m):
    n, k, dtype = 200, 264, dtypes()[0]
    x, packed, bias, answer, theirs = _operands(max(m, 1), n, k, dtype)
    for config in _configs(k):
        out = launch(kernel(config, dtype), x[:m], packed, bias)
        assert out.shape == (m, n)
        if m:
            assert relative_error(out, answer) <= 1.1 * theirs + 1e-4, str(config)


@pytest.mark.slow
def test_twenty_kernels_end_at_any_m():
    """Random m from call to call, as a server has them: none waits forever, and none leaves its
    counters or barriers for the next in another state."""
    dtype, n, k = dtypes()[0], 1160, 1032
    draw = random.Random(5)
    x, packed, bias, _, _ = _operands(700, n, k, dtype)
    configs = [*wgmma_configs(), replace(PLAIN_WGMMA, stream_k=1)]
    assert len(configs) >= 20
    compile_all([(config, dtype) for config in configs])
    for config in configs:
        loaded = kernel(config, dtype)
        whole = launch(loaded, x, packed, bias)
        out, checked = torch.empty_like(whole), 0
        for call in range(5000):
            m = min(700, int(1.0 / (draw.random() + 1 / 900)))
            loaded.launch(x[:m], packed, bias, out[:m])
            if call % 100 == 0:
                error = relative_error(out[:m], whole[:m].double())
                assert error <= 2e-2, f"{config} m={m}"
                checked += 1
        torch.cuda.synchronize()
        assert checked == 50


def test_a_block_without_columns_is_refused():
    x, packed, _, _, _ = _operands(33, 24, 8, dtypes()[0])
    config = next(c for c in wgmma_configs() if c.split_k > 1)
    with pytest.raises(LaunchError, match="split_k"):
        launch(kernel(config, dtypes()[0]), x, packed)


def test_hopper_has_the_family():
    assert "wgmma" in families_for(problem(dtypes()[0]), device())
