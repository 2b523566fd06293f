"""Grouped products of codes by the family mma give the right rows, run block by block on the host:
formats of each kind, for GPUs that no machine at hand has."""

from __future__ import annotations

from ctypes import c_longlong
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from host_experts import EXPERTS, check_rows, tiles_of
from host_kernels import address, library, quantized_on_host
from mma_bytes_cases import PLAIN_BYTES

from humming.jit.cuda.input_source import InputRecipe
from humming.jit.source import render
from humming.quantize import pack_experts
from humming.quantize.activations import requantized
from humming.quantize.drawn import drawn
from humming.spec.config import MmaConfig
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

_RUN = """#include "humming/mainloop/mma_experts.cuh"
using Wide = long long;
extern "C" void run(const void* x, const float* x_scales, const void* codes, const void* scales,
                    const void* zeros, const float* row_scales, const float* bias, void* out,
                    const void* tiles, const int* rows, int most, int shared, int n, int k,
                    Wide x_row, Wide out_row, Wide codes_bytes, Wide scales_bytes, Wide pitch) {
  using namespace humming;
  MmaCall call = {x, codes, scales, zeros, row_scales, bias, out, nullptr, nullptr,
                  0, n, k, x_row, out_row};
  call.tiles = most, call.x_scales = x_scales, call.x_scales_pitch = pitch;
  call.x_row_scales = x_scales + MmaPlan<Config>::groups_of_x(k) * pitch;
  const ExpertsCall experts = {tiles, rows, shared, codes_bytes, scales_bytes};
  const unsigned blocks = most * ((n + Config::block_n - 1) / Config::block_n);
  host::run({blocks, 1u}, MmaPlan<Config>::threads, Config::smem_bytes,
            [&] { block_mma_experts<Config>(0, call, experts); });
}
"""


def check(
    format: str,
    capability: tuple[int, int],
    config: MmaConfig,
    shape: tuple[int, int, int, int],
    folder: Path,
) -> None:
    n, k, m, top_k = shape
    of, name = (torch.bfloat16, "bf16") if capability >= (8, 0) else (torch.float16, "fp16")
    draw, arch = torch.Generator().manual_seed(n + k), 100 * capability[0] + 10 * capability[1]
    weights = [drawn(format, n, k, draw, of) for _ in range(EXPERTS)]
    packed, bias = pack_experts(weights, CUDA_A8_LAYOUT, of), torch.randn(EXPERTS, n)
    x = torch.randn(m, k, generator=draw).to(of)
    ids = torch.randint(-1, EXPERTS + 1, (m, top_k), generator=draw).flatten()
    chosen = torch.where((ids < 0) | (ids >= EXPERTS), EXPERTS, ids)
    activation = QuantFormat.parse(format).activation
    assert activation is not None
    (folder / "x").mkdir()
    recipe = InputRecipe(activation.name, name, "nibbles" if config.narrow else "bytes")
    codes, scales = quantized_on_host(recipe, x, arch, folder / "x")
    about = {"experts": EXPERTS, "top_k": top_k, "routing": "uniform"}
    asked = Problem(format, n, k, m, name, name, CUDA_A8_LAYOUT, "moe", **about)
    assert not config_violations(config, asked, gpu(capability))
    text = render(config, asked).text
    text = text.replace('#include "humming/entry/mma_bytes_experts.cuh"', _RUN)
    tiles, places = tiles_of(chosen, config.block_m)
    out = torch.full((m * top_k, n + 3), float("nan"), dtype=of)
    parts = (packed.codes, packed.scales, packed.zero_points, packed.row_scales)
    sizes = (codes.stride(0), out.stride(0), packed.codes[0].nbytes, packed.scales[0].nbytes)
    library(text, arch, folder).run(
        *map(address, (codes, scales, *parts, bias, out, tiles, places)),
        *(len(tiles), top_k, n, k),
        *map(c_longlong, (*sizes, scales.stride(0))),
    )
    flat = requantized(x, activation).double().repeat_interleave(top_k, 0)
    check_rows(out, flat, chosen, weights, bias)


def test_scales_of_groups_of_x_are_gathered_with_their_rows(tmp_path):
    check("int8g64-int8g32", (8, 0), PLAIN_BYTES, (24, 136, 12, 2), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "capability", "config", "shape"),
    [
        ("int4g128-int8", (8, 0), PLAIN_BYTES, (24, 136, 9, 2)),
        ("uint4g128z-int8", (7, 5), PLAIN_BYTES, (24, 136, 40, 2)),
        (
            "fp8e4m3b128-fp8e4m3g128",
            (9, 0),
            replace(PLAIN_BYTES, dependent_launch=1),
            (40, 300, 30, 3),
        ),
        ("mxfp4-fp8e4m3", (8, 9), PLAIN_BYTES, (24, 136, 90, 2)),
        ("nvfp4-nvfp4", (12, 0), replace(PLAIN_BYTES, block_k=256, narrow=1), (24, 136, 9, 2)),
    ],
)
def test_formats_of_every_kind_are_right(format, capability, config, shape, tmp_path):
    check(format, capability, config, shape, tmp_path)
