"""The kernels of quantized activations give the right numbers, run block by block on the host: each
format, tile, share of k and kind of GPU, those included that no machine at hand has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from host_kernels import multiplied_on_host, quantized_on_host
from mma_bytes_cases import FORMATS, PLAIN_BYTES, bytes_configs, bytes_problem

from humming.jit.cuda.input_source import InputRecipe
from humming.quantize import quantize
from humming.quantize.activations import quantize_activations
from humming.quantize.values import decode, encode
from humming.reference import error_bound, matmul_float64
from humming.spec.carriers import carrier_of, native
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat
from humming.spec.legality import config_violations
from tests.gpus import gpu

NARROW = replace(PLAIN_BYTES, block_k=256, narrow=1)


def operands(format: str, n: int, k: int, m: int, of: torch.dtype = torch.bfloat16):
    draw = torch.Generator().manual_seed(n + k + m)
    q = quantize(torch.randn(n, k, generator=draw).to(of), format)
    x = torch.randn(m, k, generator=draw)
    x = (x * torch.exp2(torch.randint(-3, 4, (m, 1), generator=draw))).to(of)
    activation = QuantFormat.parse(format).activation
    if activation is not None and not activation.dynamic:  # a checkpoint brings its scale
        q = replace(q, input_scale=torch.tensor([float(x.abs().max()) / 448]))
    return q, x, torch.randn(n, generator=draw)


def check(format, capability, config, shape, folder):
    n, k, m = shape
    of = torch.bfloat16 if capability >= (8, 0) else torch.float16
    q, x, bias = operands(format, n, k, m, of)
    asked = bytes_problem(format, "bf16" if of == torch.bfloat16 else "fp16", n, k, m)
    assert not config_violations(config, asked, gpu(capability))
    arch = 100 * capability[0] + 10 * capability[1]
    out = multiplied_on_host(config, q, x, bias, arch, folder)
    bound = error_bound(x, q, of, bias, steps=max(k, 64))
    off = (out.double() - matmul_float64(x, q, bias)).abs() / bound
    assert float(off.nan_to_num(nan=float("inf")).max()) <= 1, f"{config}: {float(off.max())}"


@pytest.mark.parametrize(
    ("format", "capability", "config"),
    [
        ("int4g128-int8", (8, 0), PLAIN_BYTES),
        ("int8g64-int8g32", (8, 0), PLAIN_BYTES),  # groups of padding, whose scales nobody made
        ("nvfp4-nvfp4", (12, 0), NARROW),
    ],
)
def test_a_few_are_right(format, capability, config, tmp_path):
    check(format, capability, config, (24, 136, 9), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("format", [*FORMATS, "nvfp4-nvfp4"])
def test_every_format_is_right_on_some_gpus(format, tmp_path):
    able = [c for c in ((7, 5), (8, 0), (8, 9), (9, 0), (12, 0)) if native(format, c)]
    for number, capability in enumerate(able):
        of = "bf16" if capability >= (8, 0) else "fp16"
        configs = [c for c in bytes_configs(format, capability, of) if not c.cluster]
        start = FORMATS.index(format) if format in FORMATS else 0
        for step in range(3):
            config = configs[(start + 3 * step + number) % len(configs)]
            shape = ((40, 200, 19), (136, 392, 70), (24, 1000, 9))[step]
            (folder := tmp_path / f"{number}{step}").mkdir()
            check(format, capability, config, shape, folder)


@pytest.mark.parametrize(
    "activation", ["fp8e4m3g128", pytest.param("fp8e4m3t", marks=pytest.mark.slow)]
)
def test_x_is_quantized_as_the_reference_says(activation, tmp_path):
    recipe = InputRecipe(activation, "bf16")
    _, x, _ = operands("int8", 8, 300, 5)
    x[1] = 0
    fixed = (
        None if recipe.format.dynamic else torch.tensor([0.004])
    )  # numbers of 2 and more are cut
    codes, scales = quantized_on_host(recipe, x, 890, tmp_path, fixed)
    wanted, of = quantize_activations(x, recipe.format, fixed)
    held = dtype(carrier_of(recipe.format) or "")
    as_held = encode(decode(wanted, recipe.format.dtype), held).view(torch.uint8)
    found = codes[:, :300]
    same = (found == as_held) | ((found & 0x7F == 0) & (as_held & 0x7F == 0))
    assert bool(same.all())
    assert not codes[:, 300:].any()
    assert torch.equal(scales[:, :5], of.T)
