"""Blocks of the family skinny that go through tiles of experts give the right rows, run on the host
thread by thread: copies are made as late as a GPU may make them."""

from __future__ import annotations

from ctypes import c_longlong
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from host_experts import EXPERTS, check_rows, tiles_of
from host_kernels import address, library

from humming.jit.source import render
from humming.quantize import pack_experts
from humming.quantize.drawn import drawn
from humming.spec.config import SkinnyConfig
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import gpu

WALK = SkinnyConfig(8, 2, 1, 1, 2, 1, 1, 1, 1, 0, 0, walk=1)
_RUN = """#include <cstring>
using Wide = long long;
extern "C" void run(const void* x, const void* codes, const void* scales, const void* zeros,
                    const float* row_scales, const float* bias, void* out, const void* tiles,
                    const int* rows, int blocks, int shared, int n, int k, Wide x_row,
                    Wide out_row, Wide codes_bytes, Wide scales_bytes, int experts_in_all,
                    void* stale, int tiles_bytes) {
  using namespace humming;
  const void* written = tiles;
  tiles = stale;
  host::kernel_before = [=] { memcpy(stale, written, tiles_bytes); };
  if (!Config::dependent_launch) host::kernel_before();
  SkinnyCall call = {x, codes, scales, zeros, row_scales, nullptr, bias, out, 0,
                     n, k, x_row, out_row};
  call.rows = rows, call.shared = shared;
  const ExpertsCall experts = {tiles, rows, shared, codes_bytes, scales_bytes};
  host::run({static_cast<unsigned>(blocks)}, Config::warps * 32, Config::smem_bytes,
            [&] { block_skinny_walk<Config>(0, call, experts, experts_in_all); });
}
"""
_RUN_ALONE = _RUN.replace("({static_cast<unsigned>(blocks)}", "(grid").replace(
    "block_skinny_walk<Config>(0, call, experts, experts_in_all)",
    "block_skinny_experts<Config>(0, call, experts)",
)
_RUN_ALONE = _RUN_ALONE.replace(
    "  host::run(",
    """  const unsigned along_n = (n + 16 * Config::tiles_n - 1) / (16 * Config::tiles_n);
  const Dim3 grid = {static_cast<unsigned>(tiles_bytes / 16), along_n};
  host::run(""",
)


def check(
    format: str,
    config: SkinnyConfig,
    shape: tuple[int, int, int, int],
    folder: Path,
    blocks: int = 2,
    sorted_rows: bool = False,
    guess: int = 0,
    activation: str = "bf16",
    beyond: int = 3,
) -> None:
    """Into rows that have `beyond` columns more than n."""
    n, k, m, top_k = shape
    of = {"bf16": torch.bfloat16, "fp16": torch.float16}[activation]
    draw = torch.Generator().manual_seed(n + k)
    weights = [drawn(format, n, k, draw, of) for _ in range(EXPERTS)]
    packed, bias = pack_experts(weights, CUDA_LAYOUT, of), torch.randn(EXPERTS, n)
    shared = 1 if sorted_rows else top_k
    x = torch.randn(m * top_k // shared, k, generator=draw).to(of)
    # Some rows are of no expert here, and one expert has none.
    chosen = torch.randint(0, EXPERTS + 1, (m * top_k,), generator=draw)
    chosen[chosen == 1] = 0
    if sorted_rows:
        chosen = chosen.sort().values
    about = {"experts": EXPERTS, "top_k": top_k, "routing": "uniform"}
    asked = Problem(format, n, k, m, activation, activation, CUDA_LAYOUT, "moe", **about)
    assert not config_violations(config, asked, gpu((9, 0)))
    text = render(config, asked).text
    entry = "skinny_walk" if config.walk else "skinny_experts"
    run = _RUN if config.walk else '#include "humming/mainloop/skinny_experts.cuh"' + _RUN_ALONE
    text = text.replace(f'#include "humming/entry/{entry}.cuh"', run)
    tiles, places = tiles_of(chosen, config.block_m)
    out = torch.full((m * top_k, n + beyond), float("nan"), dtype=of)
    parts = (packed.codes, packed.scales, packed.zero_points, packed.row_scales)
    sizes = (x.stride(0), out.stride(0), packed.codes[0].nbytes, packed.scales[0].nbytes)
    rows = None if sorted_rows else places
    # The list as it is before it is written: of older rows, of nothing, or the same.
    stale = tiles.clone() if guess == 0 else torch.full_like(tiles, guess)
    library(text, 900, folder).run(
        *map(address, (x, *parts, bias, out, tiles, rows)),
        *(blocks, shared, n, k),
        *map(c_longlong, sizes),
        *(EXPERTS, address(stale), tiles.nbytes),
    )
    check_rows(out, x.double().repeat_interleave(shared, 0), chosen, weights, bias)


def test_units_of_later_tiles_are_on_their_way(tmp_path):
    check("int4g128", WALK, (40, 136, 9, 2), tmp_path)


@pytest.mark.parametrize("guess", [0, 2, -7, 1 << 30])
def test_weights_that_are_asked_for_ahead_may_be_others(guess, tmp_path):
    config = replace(WALK, num_stages=3, dependent_launch=1)
    check("int4g128", config, (40, 136, 9, 2), tmp_path, blocks=9, guess=guess)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "config", "shape", "blocks"),
    [
        ("int4g128", replace(WALK, num_stages=1), (24, 128, 9, 2), 5),
        ("mxfp4", replace(WALK, num_stages=4, block_m=16), (72, 136, 20, 2), 3),
        ("uint4g128z", replace(WALK, warps=2, tiles_n=4, stage_tiles=2), (40, 520, 12, 2), 1),
        ("int3g128", replace(WALK, warps=2, num_stages=3), (40, 264, 12, 2), 4),
        ("nvfp4", replace(WALK, block_m=24), (24, 264, 30, 2), 2),
        ("fp8e4m3", replace(WALK, warps=4, block_m=1), (24, 520, 5, 2), 3),
        ("uint4g64zf", replace(WALK, exact_codes=1, tiles_n=1), (24, 264, 12, 2), 7),
        ("int8g32", replace(WALK, block_m=32, warps=2), (40, 264, 40, 2), 2),
    ],
)
def test_formats_warps_and_stages(format, config, shape, blocks, tmp_path):
    check(format, config, shape, tmp_path, blocks)


@pytest.mark.slow
def test_rows_that_come_sorted(tmp_path):
    check("int4g128", WALK, (40, 136, 18, 1), tmp_path, sorted_rows=True, activation="fp16")


WIDE = replace(WALK, block_m=16, tiles_n=4, stage_tiles=2)


def test_lines_are_stored_in_wide_pieces(tmp_path):
    check("int4g128", WIDE, (136, 136, 9, 2), tmp_path, beyond=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "config", "shape"),
    [
        ("int4g128", replace(WALK, warps=4, tiles_n=8), (200, 520, 9, 2)),
        ("mxfp4", replace(WIDE, warps=2, block_m=24), (72, 264, 40, 2)),
        ("nvfp4", replace(WIDE, tiles_n=2, stage_tiles=1), (40, 264, 30, 2)),
        ("fp8e4m3", replace(WALK, tiles_n=6, warps=2), (104, 264, 12, 2)),  # a scale a row
        ("int3", replace(WALK, walk=0, x_stages=2, warps=2), (72, 264, 20, 2)),
        ("uint4g64z", replace(WALK, walk=0, block_m=24, num_stages=3), (24, 264, 40, 2)),
    ],
)
def test_wide_pieces_of_formats_and_warps(format, config, shape, tmp_path):
    for beyond, activation in ((8, "bf16"), (0, "fp16")):
        folder = tmp_path / activation
        folder.mkdir()
        check(format, config, shape, folder, beyond=beyond, activation=activation)


ALONE = replace(WALK, walk=0, x_stages=2)
PAIRED = replace(ALONE, tiles_n=4, stage_tiles=2, warps=2, block_m=16)


def test_a_block_for_each_tile(tmp_path):
    check("int4g128", ALONE, (40, 136, 9, 2), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("format", "config", "shape"),
    [
        ("int4g128", replace(ALONE, num_stages=0, block_m=1), (72, 392, 5, 2)),
        (
            "int4g128",
            replace(ALONE, tiles_n=4, stage_tiles=2, warps=2, block_m=16),
            (72, 520, 40, 2),
        ),
        ("mxfp4", replace(ALONE, warps=4, tiles_n=4, x_stages=1), (72, 520, 9, 2)),
        ("uint4g64z", replace(ALONE, block_m=24, num_stages=3), (24, 264, 40, 2)),
        ("int3g128", replace(ALONE, block_m=32, warps=2), (40, 264, 40, 2)),
        ("fp8e4m3", replace(ALONE, warps=8, num_stages=0), (24, 1100, 9, 2)),
    ],
)
def test_blocks_of_one_tile(format, config, shape, tmp_path):
    check(format, config, shape, tmp_path)
