"""What a layer is on each device, as far as a machine without a GPU can tell: layouts, state,
types, families, sentences. On a GPU: test_cuda_linear.
"""

import copy
import pickle
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import humming
from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.intervals import Interval, TableEntry, TunedTable, serve_intervals
from humming.errors import CompilerNotFoundError, LayoutError, LegalityError
from humming.jit import nvrtc
from humming.jit.cache import compiled
from humming.jit.identity import here, serving_device, serving_device_of
from humming.quantize import pack, unpack
from humming.quantize.layout import packed_shapes
from humming.reference import error_bound, matmul_float64
from humming.serving.layer_spec import LayerSpec
from humming.serving.op import through_op
from humming.spec.config import DequantizeConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.identity import Identity
from humming.spec.layouts import LAYOUTS, layout_for
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from humming.state import canonical_codes, layout_on, repacked, stored_codes

H200 = Device(
    "cuda",
    "NVIDIA H200",
    "sm90",
    60 << 20,
    compute_capability=(9, 0),
    sm_count=132,
    smem_bytes_per_block=227 << 10,
    smem_bytes_per_sm=228 << 10,
    registers_per_sm=65536,
)
HERE = Identity(H200, "580.65.06", "nvrtc", "13.0.88", "ab" * 16, "1.0", "policy-1")
PROBLEM = Problem("int4g128", n=4096, k=4096, m=0, layout="cuda_n16k64")
SKINNY = SkinnyConfig(
    block_m=16,
    tiles_n=2,
    warps=8,
    split_k=1,
    num_stages=8,
    stage_tiles=1,
    x_stages=2,
    blocks_per_sm=1,
    dependent_launch=1,
    warpgroup=0,
    exact_codes=0,
)
DEQUANTIZE = DequantizeConfig(warps=4, unroll=2, panel_n=0)


def quantized(n, k, dtype=torch.bfloat16):
    torch.manual_seed(n + k)
    return humming.quantize(torch.randn(n, k, dtype=dtype), "int4g128")


def test_each_kind_of_device_has_its_layout():
    assert layout_for(H200, "int4g128") == layout_on(torch.device("cuda", 3), "int4g128")
    assert layout_for(serving_device(), "int4g128") == layout_on(torch.device("cpu"), "int4g128")
    assert layout_on(torch.device("meta"), "int4g128") == "cpu_n16k8"
    assert LAYOUTS[layout_for(H200, "int4g128")].kind == "cuda"
    with pytest.raises(LayoutError, match="on the CPU or on CUDA"):
        layout_on(torch.device("mps"), "int4g128")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 70), st.integers(1, 12), st.sampled_from([torch.bfloat16, torch.float16]))
def test_state_is_the_same_from_every_layout(n, blocks, dtype):
    q = quantized(n, 32 * blocks, dtype)
    states = []
    for layout in LAYOUTS:
        packed = pack(q, layout)
        shapes = packed_shapes(layout, "int4g128", n, 32 * blocks)
        assert {name: shapes[name] for name in packed.tensors} == {
            name: tuple(tensor.shape) for name, tensor in packed.tensors.items()
        }
        back = unpack(packed)
        states.append((stored_codes(back), back.scales))
    for pairs, scales in states:
        assert torch.equal(pairs, stored_codes(q))
        assert torch.equal(scales, q.scales)
        assert torch.equal(canonical_codes(pairs, q.format, n, 32 * blocks), q.codes)


def test_a_weight_of_another_device_is_repacked_and_one_at_home_is_left():
    q = quantized(40, 256)
    here_packed, there = pack(q), pack(q, "cuda_n16k64")
    assert repacked(here_packed, torch.bfloat16) is here_packed
    home = repacked(there, torch.bfloat16)
    assert home.layout == "cpu_n16k8"
    assert torch.equal(home.codes, here_packed.codes)
    assert torch.equal(home.scales, here_packed.scales)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_module_saved_on_cuda_and_loaded_on_the_cpu_serves(copied):
    q = quantized(40, 256)
    layer = humming.HummingLinear.from_quantized(q, torch.randn(40))
    packed = pack(q, "cuda_n16k64")  # as torch.load(map_location="cpu") leaves it
    layer.packed_codes, layer.packed_scales = packed.codes, packed.scales
    layer.spec = LayerSpec.of(packed)
    moved = copied(layer)
    x = torch.randn(3, 256, dtype=torch.bfloat16)
    error = (moved(x).double() - matmul_float64(x, q, moved.bias)).abs()
    assert bool((error <= error_bound(x, q, x.dtype, moved.bias)).all())
    assert torch.equal(moved.state_dict()["codes"], stored_codes(q))


def test_converting_twice_keeps_codes_and_scales_as_they_are():
    layer = humming.HummingLinear.from_linear(nn.Linear(256, 40))
    state = layer.state_dict()
    for convert in (nn.Module.bfloat16, nn.Module.bfloat16, nn.Module.half, nn.Module.double):
        convert(layer)
    layer.type(torch.float32)
    assert torch.equal(layer.state_dict()["codes"], state["codes"])
    assert torch.equal(layer.state_dict()["scales"], state["scales"])


@pytest.mark.parametrize(
    ("x_dtype", "sentence"),
    [
        (torch.float32, "x must be bf16 as the layer's scales are, but got fp32"),
        (torch.half, "fp16"),
    ],
)
def test_cuda_layers_take_the_type_of_their_scales_alone(x_dtype, sentence):
    packed = pack(quantized(40, 256), "cuda_n16k64").to("meta")
    call = (packed, None, LayerSpec.of(packed).text)
    x = torch.empty(2, 3, 256, device="meta", dtype=torch.bfloat16)
    assert through_op(x, *call).shape == (2, 3, 40)
    with pytest.raises(LayoutError, match=sentence):
        through_op(x.to(x_dtype), *call)


def test_tensors_on_the_wrong_device_get_a_sentence():
    packed = pack(quantized(40, 256), "cuda_n16k64")
    x = torch.empty(2, 256, dtype=torch.bfloat16)
    with pytest.raises(LayoutError, match="serves on CUDA, but got x on cpu"):
        humming.gemm(x, packed)
    text = LayerSpec.of(packed).text.replace("cuda_n16k64", "cuda_n16k65")
    with pytest.raises(LayoutError, match="did you mean 'cuda_n16k64'"):
        through_op(x, packed, None, text)


def table_of(*anchors, identity=HERE, problem=PROBLEM):
    intervals = (
        Interval(low, high, m, config, 1.0, 2.0, f"r{m}")
        for low, high, m, config in serve_intervals(anchors)
    )
    return TunedTable("t" * 32, (TableEntry(identity, problem, tuple(intervals)),))


def test_configs_of_any_legal_family_serve_and_the_heuristic_the_rest():
    tuned = table_of((1, SKINNY), (16, SKINNY), (64, DEQUANTIZE))
    dispatches = resolve(PROBLEM, HERE, tuned)
    assert [lookup(dispatches, m).config for m in (0, 1, 16, 31)] == [SKINNY] * 4
    assert [lookup(dispatches, m).config for m in (32, 64, 256)] == [DEQUANTIZE] * 3
    assert lookup(dispatches, 257).source == "heuristic"
    for dispatch in dispatches:
        problem = PROBLEM.at(dispatch.m_low)
        assert config_violations(dispatch.config, problem, H200) == []
    assert len({d.config.family for d in resolve(PROBLEM, HERE, None)}) > 1


def test_a_config_that_this_gpu_cannot_run_is_passed_over():
    small = replace(HERE, device=replace(H200, smem_bytes_per_block=48 << 10))
    dispatches = resolve(PROBLEM, small, table_of((1, SKINNY), identity=small))
    assert config_violations(SKINNY, PROBLEM.at(1), small.device)
    assert lookup(dispatches, 1).source == "heuristic"
    assert config_violations(lookup(dispatches, 1).config, PROBLEM.at(1), small.device) == []


def test_records_of_a_cpu_leave_a_gpu_alone_and_the_other_way_round(make_table):
    cpu = make_table(4096, 4096, problem={"activation_dtype": "bf16", "output_dtype": "bf16"})
    both = TunedTable("t" * 32, cpu.entries + table_of((1, SKINNY)).entries)
    assert lookup(resolve(PROBLEM, HERE, both), 1).config == SKINNY
    on_cpu = replace(PROBLEM, layout="cpu_n16k8")
    assert lookup(resolve(on_cpu, here(), both), 1).config.family == "cpu"


def test_what_no_family_of_the_device_runs_is_refused_in_its_own_words():
    fp32 = replace(PROBLEM, activation_dtype="fp32", output_dtype="fp32")
    with pytest.raises(LegalityError, match="takes bf16 or fp16 activations"):
        resolve(fp32, HERE, None)
    old = replace(HERE, device=replace(H200, compute_capability=(7, 0)))
    with pytest.raises(LegalityError, match="needs an NVIDIA GPU"):
        resolve(PROBLEM, old, None)


def test_the_identity_names_the_compiler_of_the_device():
    mine = here(H200)
    assert mine.device == H200
    assert mine.compiler in ("nvrtc", "")
    assert (mine.compiler == "") == (mine.compiler_version == "")
    assert here().compiler != "nvrtc"
    assert here().driver == ""
    assert serving_device_of(torch.device("cpu")) == serving_device()


def test_without_nvrtc_a_cached_kernel_serves_and_nothing_else(monkeypatch, tmp_path):
    monkeypatch.setenv("HUMMING_CACHE", str(tmp_path))
    found = compiled(DEQUANTIZE, PROBLEM.at(64), H200)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc._nvrtc.cache_clear()
    try:
        assert compiled(DEQUANTIZE, PROBLEM.at(64), H200).path == found.path
        with pytest.raises(CompilerNotFoundError, match="no NVRTC found; install it with"):
            compiled(SKINNY, PROBLEM.at(1), H200)
        assert here(H200).compiler_version == ""
        with pytest.raises(CompilerNotFoundError, match="need cuda-python"):
            serving_device_of(torch.device("cuda", 0))
    finally:
        nvrtc._nvrtc.cache_clear()
