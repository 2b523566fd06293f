"""HummingLinear in formats with zero points, second scales, rows' scales and act-order: numbers,
state, copies, conversions, and what is watched behind its back."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch

import humming
from humming import HummingLinear
from humming.errors import FormatError, LayoutError, LegalityError
from humming.quantize import pack
from humming.quantize.drawn import drawn
from humming.reference import error_bound, matmul_float64
from humming.serving.layer_spec import LayerSpec
from humming.state import why_unserved

FORMATS = ["uint4g32z", "uint3g64zf", "fp8e4m3", "fp8e4m3t", "fp8e4m3b32", "mxfp4", "nvfp4", "int8"]
N, K = 40, 96


def weight(format, act_order=False, dtype=torch.bfloat16):
    return drawn(format, N, K, torch.Generator().manual_seed(3), dtype, act_order)


def assert_right(layer, x):
    q = layer.quantized()
    error = (layer(x).double() - matmul_float64(x, q, layer.bias)).abs()
    assert bool((error <= error_bound(x, q, x.dtype, layer.bias)).all())


@pytest.mark.parametrize("format", FORMATS)
def test_a_layer_is_within_the_bound_of_float64(format):
    act_order = FORMATS.index(format) % 2 == 0  # each is compiled for itself
    layer = HummingLinear.from_quantized(weight(format, act_order), torch.randn(N))
    for x in (torch.randn(1, K), torch.randn(2, 3, K).bfloat16()):
        flat = x.view(-1, K)
        assert layer(x).shape == (*x.shape[:-1], N)
        assert_right(layer, flat)
        assert_right(layer, flat)  # the bound path too


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_copies_and_conversions_keep_the_weight(format, act_order):
    q = weight(format, act_order)
    layer = HummingLinear.from_quantized(q)
    whole = q.dequantize()
    for other in (
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        layer.half(),
        layer.float(),
    ):
        assert torch.equal(other.quantized().dequantize(), whole)
    empty = copy.deepcopy(layer).to("meta").to_empty(device="cpu")
    empty.load_state_dict(layer.state_dict())
    assert torch.equal(empty.quantized().dequantize(), whole)


def test_a_state_dict_has_what_the_weight_has():
    full = {"codes", "format", "scales", "zero_points", "permutation"}
    assert set(HummingLinear.from_quantized(weight("uint4g32z", True)).state_dict()) == full
    second = {"codes", "format", "scales", "global_scales"}
    assert set(HummingLinear.from_quantized(weight("nvfp4")).state_dict()) == second


@pytest.mark.parametrize(
    ("sent", "taker"),
    [("mxfp4", "int4g32"), ("int8", "fp8e4m3"), ("fp8e4m3", "fp8e5m2"), ("nvfp4", "int4g16")],
)
def test_a_state_dict_of_another_format_is_refused(sent, taker):
    layer = HummingLinear.from_quantized(weight(taker))
    before = layer.quantized().dequantize()
    with pytest.raises(RuntimeError, match=f"holds {sent}, but the layer is {taker}"):
        layer.load_state_dict(HummingLinear.from_quantized(weight(sent)).state_dict())
    assert torch.equal(layer.quantized().dequantize(), before)


def test_a_format_told_in_another_shape_or_type_is_read():
    layer = HummingLinear.from_quantized(weight("int4g32"))
    state = layer.state_dict()
    layer.load_state_dict({**state, "format": state["format"].half().reshape(1, -1)})
    with pytest.raises(RuntimeError, match="but the layer is int4g32"):
        layer.load_state_dict({**state, "format": torch.tensor(200, dtype=torch.uint8)})


def test_a_state_dict_that_names_no_format_is_taken():
    layer = HummingLinear.from_quantized(weight("int4g32"))
    state = layer.state_dict()
    del state["format"]
    layer.load_state_dict(state)


def test_a_state_dict_brings_and_takes_act_order():
    ordered = HummingLinear.from_quantized(weight("int4g32", act_order=True))
    plain = HummingLinear.from_quantized(weight("int4g32"))
    for target, source in ((copy.deepcopy(plain), ordered), (copy.deepcopy(ordered), plain)):
        target.load_state_dict(source.state_dict())
        assert target.spec.act_order == source.spec.act_order
        assert_right(target, torch.randn(3, K))


def test_a_state_dict_without_zero_points_is_refused():
    layer = HummingLinear.from_quantized(weight("uint4g32z"))
    state = layer.state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*zero_points"):
        layer.load_state_dict({key: state[key] for key in ("codes", "scales")})
    state["scales"] = state["scales"][:, :1]
    with pytest.raises(RuntimeError, match="scales of uint4g32z codes"):
        layer.load_state_dict(state)


@pytest.mark.parametrize(
    ("format", "key", "wrong", "says"),
    [
        ("int4g32", "scales", float("nan"), r"isfinite\(scales\)"),
        ("fp8e4m3", "scales", float("inf"), r"isfinite\(scales\)"),
        ("nvfp4", "global_scales", float("nan"), r"isfinite\(global_scales\)"),
        ("uint3g64zf", "zero_points", float("nan"), r"isfinite\(zero_points\)"),
        ("uint4g32z", "permutation", 96, "permutation must hold each of 0 .. 95 once"),
    ],
)
def test_a_state_dict_with_numbers_that_cannot_be_is_refused(format, key, wrong, says):
    layer = HummingLinear.from_quantized(weight(format, act_order=True))
    state = layer.state_dict()
    spoiled = state[key].clone()
    spoiled.view(-1)[0] = wrong
    with pytest.raises(RuntimeError, match=says):
        layer.load_state_dict({**state, key: spoiled})
    assert torch.equal(layer.quantized().dequantize(), weight(format, True).dequantize())


@pytest.mark.parametrize(
    ("format", "buffer"),
    [
        ("int8", "packed_row_scales"),
        ("uint4g32z", "packed_zero_points"),
        ("int4g32", "packed_permutation"),
    ],
)
def test_a_tensor_changed_behind_its_back_is_seen(format, buffer):
    layer = HummingLinear.from_quantized(weight(format, act_order=True))
    x = torch.randn(2, K)
    before = layer(x)
    swapped = {buffer: getattr(layer, buffer).flip(0).contiguous()}
    assert not torch.equal(torch.func.functional_call(layer, swapped, (x,)), before)
    assert torch.equal(layer(x), before)
    getattr(layer, buffer).data = getattr(layer, buffer).data.to(torch.float64)
    with pytest.raises(LayoutError, match="leave its buffers alone"):
        layer(x)


@pytest.mark.parametrize("format", ["uint4g32z", "nvfp4"])
def test_the_op_is_what_torch_expects_of_one(format):
    packed = pack(weight(format, act_order=True))
    further = (packed.zero_points, packed.row_scales, packed.permutation, packed.input_scale)
    text = LayerSpec.of(packed).text
    arguments = (torch.randn(3, K), packed.codes, packed.scales, *further, None, text)
    torch.library.opcheck(torch.ops.humming.linear.default, arguments)


def test_a_layer_compiles_without_a_graph_break():
    layer = HummingLinear.from_quantized(weight("uint4g32z", act_order=True))
    x = torch.randn(3, K)
    with torch.inference_mode():
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(x), layer(x))


def test_a_missing_tensor_is_named():
    packed = pack(weight("uint4g32z", act_order=True))
    x = torch.randn(1, K)
    for field, sentence in (("zero_points", "must be given"), ("row_scales", None)):
        broken = replace(packed, **{field: None})
        if sentence is None:
            assert humming.gemm(x, broken).shape == (1, N)
        else:
            with pytest.raises(LayoutError, match=f"{field} {sentence}"):
                humming.gemm(x, broken)


def test_what_no_kernel_takes_is_refused_in_a_sentence():
    layer = torch.nn.Linear(K, N)
    reason = why_unserved("int6-int4", N, K, torch.float32, torch.device("cpu"))
    assert reason.startswith("each value of int6 must be one of int4")
    with pytest.raises(FormatError, match="each value of int6"):
        humming.convert(layer, "int6-int4")
    with pytest.raises(FormatError, match="each value of int6"):
        HummingLinear.from_linear(layer, "int6-int4")
    with pytest.raises(FormatError, match=r"^CPUs .* 'fp8e4m3-fp8e4m3'; use fp8e4m3$"):
        HummingLinear.from_linear(layer, "fp8e4m3-fp8e4m3")
    for format, says in (("int6-int4", "each value of int6"), ("int3-int8", "int3")):
        with pytest.raises(FormatError, match=says):
            HummingLinear.from_quantized(weight(format))
    made = HummingLinear(K, N, format="int6-int4")  # on whatever device it will be filled
    with pytest.raises(LegalityError, match="each value of int6"):
        made(torch.zeros(1, K))


def test_the_layer_has_a_type_where_its_scales_have_none_of_x():
    assert HummingLinear.from_quantized(weight("mxfp4")).dtype == torch.bfloat16
    assert HummingLinear.from_quantized(weight("mxfp4"), dtype=torch.half).dtype == torch.half
    with pytest.raises(LayoutError, match="dtype must be fp32, bf16 or fp16"):
        HummingLinear.from_quantized(weight("mxfp4"), dtype=torch.float64)
