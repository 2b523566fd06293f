"""HummingLinear on a GPU: numbers, dispatch over families, graphs, streams, threads, compilation.

State and moving: test_cuda_state.
"""

import threading

import pytest
import torch
from cuda_layers import DTYPES, assert_right, layer_of, random
from torch import nn

import humming
from humming.dispatch.dispatcher import lookup
from humming.dispatch.heuristics import heuristic_intervals
from humming.dispatch.intervals import Interval, TableEntry, serve_intervals
from humming.dispatch.tables import write_generation
from humming.errors import LaunchError, UsageError
from humming.jit.identity import here, serving_device_of
from humming.quantize import pack
from humming.serving.layer_spec import LayerSpec
from humming.spec.config import DequantizeConfig
from humming.spec.problem import Problem

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("n", "k", "bias"),
    [(1000, 520, True), (4096, 4096, False), (2056, 1032, True), (1111, 40, True)],
)
def test_numbers_are_as_good_as_torchs(n, k, bias, dtype):
    layer = layer_of(n, k, bias, dtype)
    with torch.inference_mode():
        for m in (0, 1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 200):
            x = random(m, k, dtype=dtype)
            assert_right(layer, x, layer(x))
            assert_right(layer, x, layer(x))  # the bound path too
            q = layer.quantized()
            assert_right(layer, x, humming.gemm(x, pack(q, layer.spec.layout), layer.bias))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0, 0],
        lambda x: x[:, :, None],
        lambda x: x[:0],
        lambda x: x[0, ::2],
        lambda x: x[0].T.contiguous().T,
        lambda x: x[0, :1].expand(40, 520),
        lambda x: torch.cat([x[0], x[0]], 1)[:, 1:521],
        lambda x: torch.cat([x[0], x[0, :, :3]], 1)[:, 2:522],
        lambda x: x.reshape(-1)[1 : 1 + 40 * 520].view(40, 520),
    ],
)
def test_any_leading_dimensions_strides_and_alignment(view):
    layer, x = layer_of(), view(random(3, 40, 520))
    assert_right(layer, x, layer(x))


@pytest.fixture
def tuned(tmp_path):
    """`tuned(layer)` -> a table: the heuristic's config of one row at 1 and 16, else dequantize."""

    def make(layer):
        machine = here(serving_device_of(layer.packed_codes.device))
        spec = layer.spec
        problem = Problem(spec.format, spec.n, spec.k, m=0, layout=spec.layout, bias=True)
        skinny = heuristic_intervals(problem, machine.device)[0][2]
        other = DequantizeConfig(warps=2, unroll=1, panel_n=512)
        anchors = {1: skinny, 16: skinny, 64: other, 1024: other}
        intervals = (
            Interval(low, high, m, config, 1.0, 2.0, f"r{m}")
            for low, high, m, config in serve_intervals(anchors.items())
        )
        return write_generation([TableEntry(machine, problem, tuple(intervals))], tmp_path / "t")

    return make


def test_families_serve_by_m_as_the_table_says(tuned):
    layer = layer_of()
    layer.prepare(tuned(layer).path)
    (plan,) = layer._plans.values()
    assert "tuned exact" in repr(layer)
    families = [lookup(plan.dispatches, m).config.family for m in (1, 31, 32, 300)]
    assert families == ["skinny", "skinny", "dequantize", "dequantize"]
    for m in (1, 31, 32, 300):
        x = random(m, 520)
        assert_right(layer, x, layer(x))


def test_a_launch_that_fails_gives_way_with_one_warning(tuned, monkeypatch):
    layer = layer_of(1008)
    layer.prepare(tuned(layer).path)
    (plan,) = layer._plans.values()
    index = [d.config.family for d in plan.dispatches].index("dequantize")

    def fail(*_):
        raise LaunchError("status 7")

    monkeypatch.setattr(plan._bound.kernels[index], "launch", fail)
    x = random(64, 520)
    with pytest.warns(RuntimeWarning, match="status 7"):
        y = layer(x)
    monkeypatch.undo()
    assert_right(layer, x, y)
    # The nearest tuned config that is legal here, else the heuristic's: never the refused one.
    assert lookup(plan.dispatches, 64).source in ("nearest", "heuristic")


def test_a_prepared_layer_is_captured_and_replayed_for_every_m():
    layer = layer_of(1016)
    layer.prepare()
    graphs = []
    for m in (1, 4, 16, 40, 300):
        x, graph = random(m, 520), torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            y = layer(x)
        graphs.append((graph, x, y))
    for _ in range(3):
        for graph, x, y in graphs:
            x.copy_(random(*x.shape))
            graph.replay()
            torch.cuda.synchronize()
            assert_right(layer, x, y)


@pytest.mark.parametrize("call", [lambda layer, x: layer(x), lambda layer, x: layer.prepare()])
def test_loading_in_a_capture_gets_a_sentence_and_harms_nothing(call):
    layer, x = layer_of(1024), random(3, 520)
    refused = pytest.raises(UsageError, match=r"humming\.prepare")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        call(layer, x)
    assert_right(layer, x, layer(x))


def test_streams_and_threads_get_the_serial_result():
    layer = layer_of(2048, 2048)
    inputs = [random(m, 2048) for m in (1, 2, 5, 8, 16, 40, 100, 300)]
    expected = [layer(x).clone() for x in inputs]
    torch.cuda.synchronize()
    wrong = []

    def serve(x, y, stream):
        with torch.inference_mode(), torch.cuda.stream(stream):
            same = [(layer(x) - y).abs().max() for _ in range(50)]
            wrong.extend(d for d in same if float(d) > 0.01 * float(y.abs().max()))

    own = [torch.cuda.Stream() if i % 2 else torch.cuda.default_stream() for i in range(8)]
    threads = [
        threading.Thread(target=serve, args=each)
        for each in zip(inputs, expected, own, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("bias", [True, False])
def test_a_model_compiles_without_a_graph_break(bias):
    model = nn.Sequential(layer_of(512, 520, bias), nn.ReLU(), layer_of(512, 512, bias)).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch.inference_mode():
        for m in (2, 3, 9, 64):
            x = random(m, 520)
            assert torch.equal(compiled(x), model(x))
    weight = pack(model[0].quantized(), model[0].spec.layout)
    call = (
        random(3, 520),
        weight.codes,
        weight.scales,
        None,
        None,
        None,
        None,
        None,
        LayerSpec.of(weight).text,
    )
    torch.library.opcheck(torch.ops.humming.linear.default, call)
