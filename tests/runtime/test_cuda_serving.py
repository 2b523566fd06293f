"""Serving on a GPU: recorded calls, graphs of many batch sizes, streams, threads, compiled models.

Numbers and families: test_cuda_linear.
"""

import os
import subprocess
import sys
import threading

import pytest
import torch
from cuda_layers import assert_right, layer_of, random
from torch import nn

import humming
from humming.errors import LayoutError, UsageError
from humming.jit.cuda import launcher
from humming.jit.cuda.launcher import native_launcher

pytestmark = pytest.mark.gpu

ROWS = (1, 2, 7, 16, 24, 33, 64, 100, 300, 700)


@pytest.fixture(params=["native", "binding"])
def road(request, monkeypatch):
    if request.param == "binding":
        monkeypatch.setattr(launcher, "_library", lambda: None)
    else:
        assert native_launcher()
    return request.param


@pytest.mark.parametrize("bias", [True, False])
def test_a_recorded_call_gives_the_bits_of_a_careful_one(road, bias):
    layer = layer_of(2048, 1024, bias)
    with torch.inference_mode():
        for m in ROWS:
            first = layer(random(m, 1024))
            assert first.shape == (m, 2048)
            for _ in range(3):
                x = random(m, 1024)
                warm, careful = layer(x), layer._forward_carefully(x)
                assert torch.equal(warm, careful), m
            assert_right(layer, x, warm)


def test_rows_that_begin_oddly_or_are_strided_are_served_too(road):
    layer = layer_of(1000, 520)
    wide = random(9, 1040)
    with torch.inference_mode():
        layer(random(8, 520))
        for x in (wide[1:, :520], wide[:8, 3:523], wide.reshape(-1)[1 : 1 + 8 * 520].view(8, 520)):
            assert_right(layer, x, layer(x))


def test_64_batch_sizes_are_captured_and_share_one_pool():
    layer = layer_of(1024, 2048)
    layer.prepare()
    sizes = [*range(1, 33), *range(36, 128, 4), *range(128, 512, 43)]
    assert len(sizes) == 64
    pool, graphs = torch.cuda.graph_pool_handle(), []
    for m in reversed(sizes):
        x, graph = random(m, 2048), torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph, pool=pool):
            y = layer(x)
        graphs.append((m, graph, x, y))
    for _ in range(2):
        for m, graph, x, y in graphs:
            x.copy_(random(m, 2048))
            graph.replay()
            assert_right(layer, x, y)


def test_graphs_of_one_stream_replay_together_without_harm():
    layers = [layer_of(2048, 1024, seed=seed) for seed in range(2)]
    stream, made = torch.cuda.Stream(), []
    for layer in layers:
        layer.prepare()
        for m in (1, 16, 64, 200):
            x, graph = random(m, 1024), torch.cuda.CUDAGraph()
            with torch.inference_mode(), torch.cuda.graph(graph, stream=stream):
                y = layer(x)
            made.append((layer, graph, x, y, layer(x).clone()))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in made]
    for _ in range(50):
        for (_, graph, *_), own in zip(made, streams, strict=True):
            with torch.cuda.stream(own):
                graph.replay()
    torch.cuda.synchronize()
    for _, _, _, y, expected in made:
        assert torch.equal(y, expected)


def test_8_threads_of_1000_calls_give_the_serial_result():
    layer = layer_of(2048, 1024)
    inputs = [random(m, 1024) for m in (1, 2, 5, 16, 33, 40, 64, 130)]
    with torch.inference_mode():
        expected = [layer(x).clone() for x in inputs]
    torch.cuda.synchronize()
    wrong = []

    def serve(index, stream):
        with torch.inference_mode(), torch.cuda.stream(stream):
            bad = torch.zeros((), dtype=torch.bool, device="cuda")
            for call in range(1000):
                at = (index + call) % 8
                bad |= (layer(inputs[at]) != expected[at]).any()
            wrong.append(bool(bad))

    own = [torch.cuda.Stream() if i % 2 else torch.cuda.default_stream() for i in range(8)]
    threads = [threading.Thread(target=serve, args=each) for each in enumerate(own)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 8


def test_one_compilation_serves_2_to_512_rows():
    model = nn.Sequential(layer_of(512, 520), nn.SiLU(), layer_of(264, 512)).eval()
    humming.prepare(model)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    with torch.inference_mode():
        compiled(random(3, 520))
        with torch._dynamo.config.patch(error_on_recompile=True):
            for m in (2, 3, 5, 8, 16, 17, 64, 100, 256, 511, 512):
                x = random(m, 520)
                torch.testing.assert_close(compiled(x), model(x), rtol=2e-2, atol=2e-2)


def test_an_aotinductor_package_loads_from_python(tmp_path):
    model = nn.Sequential(layer_of(512, 520), nn.SiLU(), layer_of(264, 512)).eval()
    rows = torch.export.Dim("rows", min=2, max=512)
    with torch.no_grad():
        exported = torch.export.export(model, (random(4, 520),), dynamic_shapes=({0: rows},))
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(tmp_path / "model.pt2")
        )
        loaded = torch._inductor.aoti_load_package(path)
        for m in (2, 9, 512):
            x = random(m, 520)
            torch.testing.assert_close(loaded(x), model(x), rtol=2e-2, atol=2e-2)


def test_an_unprepared_capture_is_refused_and_the_stream_lives_on():
    layer, x = layer_of(1040, 520), random(5, 520)
    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        refused = pytest.raises(UsageError, match=r"humming\.prepare")
        with refused, torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            layer(x)
        layer.prepare()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            y = layer(x)
        graph.replay()
        stream.synchronize()
        assert_right(layer, x, y)


def test_changed_weights_are_seen_by_the_next_call():
    layer, other, x = layer_of(1048, 520), layer_of(1048, 520, seed=1), random(2, 520)
    with torch.inference_mode():
        layer(x)
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer(x), other(x))
        layer.packed_scales.data = layer.packed_scales.data.float()
        with pytest.raises(LayoutError, match="scales must have the activations' type"):
            layer(x)


def test_memory_after_conversion_is_within_2_percent_of_the_packed_tensors():
    random(64, 64) @ random(64, 64)  # torch's matmul keeps 32 MiB to itself from its first call on
    before = torch.cuda.memory_allocated()
    model = nn.Sequential(
        *(nn.Linear(4096, 4096, bias=False, dtype=torch.bfloat16) for _ in range(3))
    ).cuda()
    humming.prepare(humming.convert(model))
    with torch.inference_mode():
        for m in (1, 64, 1024):
            model(random(m, 4096))
    torch.cuda.synchronize()
    packed = sum(buffer.nbytes for buffer in model.buffers())
    assert torch.cuda.memory_allocated() - before <= 1.02 * packed


@pytest.mark.parametrize("index", ["0", "uuid"])
def test_gpus_are_found_by_the_name_that_the_environment_gives(index):
    name = str(torch.cuda.get_device_properties(0).uuid)
    visible = "0" if index == "0" else name if name.startswith("GPU-") else f"GPU-{name}"
    script = (
        "import torch, humming\n"
        "linear = torch.nn.Linear(512, 256, dtype=torch.bfloat16, device='cuda:0')\n"
        "layer = humming.convert(linear)\n"
        "layer.prepare(m=1)\n"
        "print(tuple(layer(torch.ones(1, 512, dtype=torch.bfloat16, device='cuda')).shape))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": visible},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "(1, 256)", done.stderr[-500:]


@pytest.mark.parametrize(("n", "k"), [(1000, 520), (4096, 4096), (640, 8192)])
def test_batch_invariant_rows_have_the_same_bits_whatever_m(n, k):
    layer, x = layer_of(n, k), random(700, k)
    try:
        humming.set_batch_invariant(True)
        with torch.inference_mode():
            whole = layer(x)
            assert_right(layer, x, whole)
            for m in (1, 2, 3, 16, 17, 33, 64, 65, 130, 300):
                for rows in (slice(0, m), slice(700 - m, 700)):
                    assert torch.equal(layer(x[rows]), whole[rows]), m
    finally:
        humming.set_batch_invariant(False)
