"""Dense kernels of the family skinny give the right numbers, run block by block on the host: each
format and each way to hold weights. Clusters and warpgroups are other tests', on a GPU."""

from __future__ import annotations

from ctypes import c_longlong
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cuda_cases import PLAIN
from format_cases import FORMATS, random_weight
from host_kernels import address, library

from humming.jit.load import TORCH_DTYPES
from humming.jit.source import render
from humming.quantize import pack
from humming.reference import matmul_float64
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

_RUN = """
extern "C" void run(const void* x, const void* codes, const void* scales, const void* zeros,
                    const float* row_scales, const int* permutation, const float* bias, void* out,
                    int m, int n, int k, long long x_row, long long out_row) {
  using namespace humming;
  const SkinnyCall call = {x, codes, scales, zeros, row_scales, permutation, bias, out,
                           m, n, k, x_row, out_row};
  const unsigned rows = 16 * Config::tiles_n;
  const Dim3 grid = {(m + Config::block_m - 1u) / Config::block_m, (n + rows - 1) / rows};
  host::run(grid, Config::warps * 32, Config::smem_bytes, [&] { block_skinny<Config>(0, call); });
}
"""
RING = replace(PLAIN, warps=2, num_stages=3)
CONFIGS = (
    PLAIN,
    RING,
    replace(RING, stage_tiles=2, x_stages=1),
    replace(RING, block_m=16, tiles_n=3, warps=4),
    replace(PLAIN, block_m=1, tiles_n=2, exact_codes=1),
    replace(RING, block_m=32, warps=1),
)
SHAPES = ((40, 392, 9), (136, 200, 3), (24, 1000, 33))


def check(
    format: str,
    config: SkinnyConfig,
    shape: tuple[int, int, int],
    folder: Path,
    dtype: str = "bf16",
    act_order: bool = False,
    pitch: int = 8,
) -> None:
    """`pitch`: what a row of x has beyond k."""
    n, k, m = shape
    draw, of = torch.Generator().manual_seed(n + k + m), TORCH_DTYPES[dtype]
    weight = random_weight(format, n, k, dtype, draw, act_order)
    asked = Problem(format, n, k, m, dtype, dtype, layout=CUDA_LAYOUT, act_order=act_order)
    assert not config_violations(config, asked, gpu((8, 0)))
    x = torch.full((m, k + pitch), float("nan"), dtype=of)
    x[:, :k] = torch.randn(m, k, generator=draw).to(of)
    bias, out = torch.randn(n, generator=draw), torch.full((m, n + 3), float("nan"), dtype=of)
    packed = pack(weight, CUDA_LAYOUT, of)
    text = render(config, asked).text
    parts = (packed.codes, packed.scales, packed.zero_points, packed.row_scales)
    library(text.replace('#include "humming/entry/skinny.cuh"', _RUN), 800, folder).run(
        *map(address, (x, *parts, packed.permutation, bias, out)),
        *(m, n, k),
        *map(c_longlong, (x.stride(0), out.stride(0))),
    )
    rows = x[:, :k].contiguous()
    answer = matmul_float64(rows, weight, bias)
    of_torch = torch.nn.functional.linear(rows, weight.dequantize(of), bias.to(of))
    ours, theirs = ((o.double() - answer).norm() for o in (out[:, :n], of_torch))
    assert ours <= 1.1 * theirs + 1e-6 * answer.norm(), (format, config, float(ours / theirs))
    assert out[:, n:].isnan().all()


@pytest.mark.parametrize(
    ("format", "config"),
    [("int4g128", CONFIGS[2]), ("mxfp4", CONFIGS[1]), ("uint4g64z", CONFIGS[3])],
)
def test_a_few_are_right(format, config, tmp_path):
    check(format, config, SHAPES[0], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_right(format, dtype, tmp_path):
    asked = Problem(format, 64, 512, 8, dtype, dtype, layout=CUDA_LAYOUT)
    if config_violations(PLAIN, asked, gpu((8, 0))):
        pytest.skip("another family takes it")
    start = FORMATS.index(format)
    for step in range(2):
        config = CONFIGS[(start + 3 * step + (dtype == "fp16")) % len(CONFIGS)]
        (folder := tmp_path / str(step)).mkdir()
        check(format, config, SHAPES[(start + step) % 3], folder, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("config", [PLAIN, RING])
def test_act_order_and_rows_of_any_length(config, tmp_path):
    (tmp_path / "1").mkdir(), (tmp_path / "2").mkdir()
    check("int4g128", config, (40, 392, 9), tmp_path / "1", act_order=True)
    check("int4g32", config, (40, 203, 9), tmp_path / "2", pitch=2)
