"""The kernel that quantizes x: it compiles for every GPU since Turing, and on a GPU gives the codes
and scales of quantize/activations.py, bit for bit."""

from __future__ import annotations

import pytest
import torch

from humming.errors import FormatError, LayoutError
from humming.jit.cuda.input_quantizer import InputQuantizer
from humming.jit.cuda.input_source import InputRecipe, input_source
from humming.jit.nvrtc import compile_cubin
from humming.quantize.activations import quantize_activations
from humming.quantize.values import decode, encode
from humming.spec.carriers import carrier_of
from humming.spec.dtypes import dtype
from humming.spec.formats import TensorFormat

RECIPES = {
    "sm_75": [InputRecipe("int8", "fp16"), InputRecipe("int4", "fp16", "nibbles")],
    "sm_89": [
        InputRecipe("fp8e4m3g128", "bf16", silu_and_mul=True),
        InputRecipe("fp8e4m3t", "bf16"),
    ],
    "sm_90": [InputRecipe("nvfp4", "bf16", "numbers")],
    "sm_120": [InputRecipe("int8g96", "bf16")],
}
BYTES = ["int8", "int4", "int8g128", "int8g96", "mxint8", "fp8e4m3", "fp8e4m3g128", "fp8e5m2"]
BYTES += ["mxfp8e4m3", "mxfp4", "mxfp6e2m3", "fp6e3m2", "fp8e4m3t", "fp8e5m2t"]
NUMBERS = ["nvfp4", "fp8e3m4", "int8g16", "int6", "mxfp4", "fp8e4m3g40", "fp8e4m3t"]
SHAPES = [(1, 1), (3, 40), (5, 129), (2, 1000), (7, 9000)]


@pytest.mark.parametrize("arch", sorted(RECIPES))
def test_it_compiles(arch):
    for recipe in RECIPES[arch]:
        cubin = compile_cubin(input_source(recipe), arch)
        assert "warning" not in cubin.report
        assert cubin.spill_bytes == 0


def test_what_codes_do_not_hold_is_refused():
    with pytest.raises(FormatError, match="do not hold the codes of 'fp8e3m4'"):
        input_source(InputRecipe("fp8e3m4", "bf16"))
    with pytest.raises(FormatError, match="do not hold the codes of 'int8'"):
        input_source(InputRecipe("int8", "bf16", "nibbles"))
    with pytest.raises(LayoutError, match="power of two"):
        input_source(InputRecipe("int8", "bf16", hadamard=48))


def drawn(m: int, k: int, of: torch.dtype) -> torch.Tensor:
    draw = torch.Generator("cuda").manual_seed(m * 7 + k)
    x = torch.randn((m, k), generator=draw, device="cuda")
    x = x * torch.exp2(torch.randint(-6, 7, (m, 1), generator=draw, device="cuda"))
    if m > 2:
        x[1] = 0
        x[2, : k // 2] *= 1e-30 if of == torch.bfloat16 else 1e-7
    return x.to(of)


def fixed_scale(form: TensorFormat) -> torch.Tensor | None:
    """One of a static format, by which some numbers are cut."""
    return None if form.dynamic else torch.full((1,), 2.0 / form.dtype.largest, device="cuda")


def quantized(recipe: InputRecipe, x: torch.Tensor, permutation: torch.Tensor | None = None):
    made = InputQuantizer(recipe)
    k = x.shape[1] // (2 if recipe.silu_and_mul else 1)
    room = torch.full((made.nbytes(x.shape[0], k) + 256,), 0xA5, dtype=torch.uint8, device="cuda")
    found = made.enqueue(x, room, permutation, fixed_scale(recipe.format))
    assert bool((room[-256:] == 0xA5).all())
    return found


def check_bytes(recipe: InputRecipe, x: torch.Tensor, wanted_of: torch.Tensor) -> None:
    m, k = wanted_of.shape
    found, form = quantized(recipe, x), recipe.format
    codes, scales = quantize_activations(wanted_of, form, fixed_scale(form))
    held = dtype(carrier_of(form) or "")
    as_held = encode(decode(codes, form.dtype), held).view(torch.uint8)
    zero_sign = decode(codes, form.dtype) == 0  # torch's zeros have no sign
    assert torch.equal(found.codes[:, :k][~zero_sign], as_held[~zero_sign])
    assert not (found.codes[:, :k][zero_sign] & 0x7F).any()
    assert not found.codes[:, k:].any()
    assert found.scales is not None
    assert torch.equal(found.scales[:, :m], scales.T)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", BYTES)
@pytest.mark.parametrize("of", ["bf16", "fp16"])
def test_codes_and_scales_are_those_of_the_reference(activation, of):
    recipe = InputRecipe(activation, of)
    for m, k in SHAPES:
        x = drawn(m, k, torch.bfloat16 if of == "bf16" else torch.float16)
        check_bytes(recipe, x, x)
        wide = torch.nn.functional.pad(x, (1, 2))[:, 1 : 1 + k]  # unaligned rows
        check_bytes(recipe, wide, x)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", NUMBERS)
def test_numbers_are_codes_times_scales_rounded_once(activation):
    recipe = InputRecipe(activation, "bf16", "numbers")
    for m, k in SHAPES:
        x = drawn(m, k, torch.bfloat16)
        codes, scales = quantize_activations(x, recipe.format, fixed_scale(recipe.format))
        size = recipe.format.group_size or k
        wide = scales.repeat_interleave(size, 1)[:, :k]
        wanted = (decode(codes, recipe.format.dtype) * wide).to(torch.bfloat16)
        assert torch.equal(quantized(recipe, x).codes, wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["int4", "mxfp4", "fp4e2m1g64"])
def test_nibbles_are_pairs_of_columns(activation):
    recipe = InputRecipe(activation, "fp16", "nibbles")
    for m, k in SHAPES:
        x = drawn(m, k, torch.float16)
        codes, _ = quantize_activations(x, recipe.format)
        padded = torch.nn.functional.pad(codes.view(torch.uint8) & 15, (0, -k % 128))
        parts = padded.view(m, -1, 2, 16)
        wanted = (parts[:, :, 0] | parts[:, :, 1] << 4).reshape(m, -1)
        found = quantized(recipe, x).codes
        same = found == wanted
        for shift in (0, 4):  # zeros may have a sign
            zero = ((found >> shift & 7) == 0) & ((wanted >> shift & 7) == 0)
            same |= zero & ((found ^ wanted) & (0xF0 if shift == 0 else 0x0F) == 0)
        both_zero = ((found & 0x77) == 0) & ((wanted & 0x77) == 0)
        assert bool((same | both_zero).all())


@pytest.mark.gpu
def test_columns_are_gathered_first():
    x = drawn(4, 300, torch.bfloat16)
    order = torch.randperm(300, device="cuda").to(torch.int32)
    recipe = InputRecipe("int8g64", "bf16")
    found, straight = quantized(recipe, x, order), quantized(recipe, x[:, order.long()])
    assert torch.equal(found.codes, straight.codes)
    assert found.scales is not None
    assert straight.scales is not None
    assert torch.equal(found.scales[:, :4], straight.scales[:, :4])


@pytest.mark.gpu
def test_two_halves_are_gated_and_columns_rotated():
    x = drawn(5, 512, torch.bfloat16)
    for recipe in (
        InputRecipe("int8", "bf16", silu_and_mul=True),
        InputRecipe("fp8e4m3g128", "bf16", silu_and_mul=True, hadamard=128),
    ):
        wide = x.to(torch.float64)
        wanted = torch.nn.functional.silu(wide[:, :256]) * wide[:, 256:]
        if recipe.hadamard:
            signs = torch.ones((1, 1), dtype=torch.float64, device="cuda")
            while len(signs) < recipe.hadamard:
                signs = torch.cat((torch.cat((signs, signs), 1), torch.cat((signs, -signs), 1)))
            wanted = (wanted.view(-1, recipe.hadamard) @ signs / recipe.hadamard**0.5).view(5, 256)
        found = quantized(recipe, x)
        assert found.scales is not None
        size = recipe.format.group_size or 256
        scales = found.scales[:, :5].T.repeat_interleave(size, 1).to(torch.float64)
        held = dtype(carrier_of(recipe.format) or "")
        codes = found.codes.view(torch.int8) if held.is_integer else found.codes
        values = decode(codes, held, torch.float64) * scales
        step = scales if held.is_integer else wanted.abs() / 8 + scales / 512
        assert bool(((values - wanted).abs() <= 0.51 * step + 1e-6 * wanted.abs()).all())


@pytest.mark.gpu
def test_a_captured_graph_quantizes_what_x_is_then():
    recipe, x = InputRecipe("int8", "bf16"), drawn(9, 4096, torch.bfloat16)
    made = InputQuantizer(recipe)
    room = torch.empty(made.nbytes(9, 4096), dtype=torch.uint8, device="cuda")
    made.enqueue(x, room)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = made.enqueue(x, room)
    x.copy_(drawn(9, 4096, torch.bfloat16).flip(1))
    graph.replay()
    codes, _ = quantize_activations(x, recipe.format)
    assert torch.equal(found.codes[:, :4096].view(torch.int8), codes)
