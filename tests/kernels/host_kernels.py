"""CUDA kernels of quantized activations, run block by block on the host: see host_block/."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from host_library import host_library
from mma_bytes_cases import bytes_problem

from humming.jit.cuda.input_source import InputRecipe, input_source
from humming.jit.source import render
from humming.quantize import QuantizedTensor, pack
from humming.spec.config import MmaConfig
from humming.spec.formats import QuantFormat
from humming.spec.layouts import CUDA_A8_LAYOUT

_QUANTIZE = """
extern "C" void run(const void* x, const int* permutation, void* codes, float* scales,
                    long long x_row, long long codes_row, long long scales_pitch, int k,
                    int aligned, const float* fixed, int m) {
  host::run({static_cast<unsigned>(m)}, humming::Config::threads, 64, [&] {
    humming_quantize_input(x, permutation, codes, scales, x_row, codes_row, scales_pitch, k,
                           aligned, fixed);
  });
}
"""
_MULTIPLY = """
extern "C" void run(const void* x, const float* x_scales, const void* codes, const void* scales,
                    const void* zeros, const float* row_scales, const float* bias, void* out,
                    float* partials, unsigned* arrived, int m, int n, int k, long long x_row_bytes,
                    long long x_scales_pitch, long long out_row, int blocks) {
  using namespace humming;
  MmaCall call = {x, codes, scales, zeros, row_scales, bias, out, partials,
                  arrived, m, n, k, x_row_bytes, out_row};
  call.x_scales = x_scales, call.x_scales_pitch = x_scales_pitch;
  call.x_row_scales = x_scales + MmaPlan<Config>::groups_of_x(k) * x_scales_pitch;
  const unsigned shares = Config::split_k;
  host::run({static_cast<unsigned>(blocks), shares}, MmaPlan<Config>::threads, Config::smem_bytes,
            [&] { block_mma<Config>(0, call); });
  if (shares == 1) return;
  const unsigned eights = m * ((n + 7) / 8);
  host::run({(eights + 255) / 256}, 256, 64, [&] { block_add_partials<Config>(call); });
}
"""


def library(text: str, arch: int, folder: Path) -> ctypes.CDLL:
    """`text` for compute capability arch / 100, compiled by the C++ compiler."""
    defined = (f"-D__CUDA_ARCH__={arch}", f"-D__CUDA_ARCH_SPECIFIC__={arch}")
    return host_library(text, folder, "host_block", "-O1", "-fpermissive", *defined)


def address(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def quantized_on_host(
    recipe: InputRecipe,
    x: torch.Tensor,
    arch: int,
    folder: Path,
    fixed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [m, pitch] and scales [rows, m rounded up to 4] of x; `fixed` is a static format's."""
    form, nibbles = recipe.format, recipe.output == "nibbles"
    m, k = x.shape
    pitch = -(-k // 128) * 128 // (2 if nibbles else 1)
    rows = form.groups(k) + int(form.second_scale and nibbles)
    codes = torch.full((m, pitch), 0x77, dtype=torch.uint8)
    scales = torch.full((rows, -(-m // 4) * 4), float("nan"))
    run = library(input_source(recipe).text + _QUANTIZE, arch, folder).run
    wide = ctypes.c_longlong
    run(
        *map(address, (x, None, codes, scales)),
        *(wide(v) for v in (x.stride(0), pitch, scales.shape[1])),
        *(k, 0, address(fixed), m),
    )
    return codes, scales


def multiplied_on_host(
    config: MmaConfig,
    q: QuantizedTensor,
    x: torch.Tensor,
    bias: torch.Tensor | None,
    arch: int,
    folder: Path,
) -> torch.Tensor:
    """What quantizing x and the kernel of `config` give for the weight `q`."""
    dtype = "bf16" if x.dtype == torch.bfloat16 else "fp16"
    (n, k), m = q.shape, x.shape[0]
    activation = QuantFormat.parse(q.format).activation
    assert activation is not None
    recipe = InputRecipe(activation.name, dtype, "nibbles" if config.narrow else "bytes")
    (folder / "x").mkdir()
    codes, scales = quantized_on_host(recipe, x, arch, folder / "x", q.input_scale)
    text = render(config, bytes_problem(q.format, dtype, n, k, m)).text
    text = text.replace('#include "humming/entry/mma_bytes.cuh"', _MULTIPLY)
    packed = pack(q, CUDA_A8_LAYOUT, x.dtype)
    blocks = -(-m // config.block_m) * -(-n // config.block_n)
    if config.stream_k:
        blocks = min(blocks * -(-k // config.block_k), 3)
    room = max(config.split_k * m * -(-n // 8) * 8, blocks * config.block_m * config.block_n)
    partials, arrived = torch.full((room,), float("nan")), torch.zeros(blocks, dtype=torch.int32)
    out = torch.full((m, n + 3), float("nan"), dtype=x.dtype)
    given: list[Any] = [
        *map(address, (codes, scales, packed.codes, packed.scales, packed.zero_points)),
        *map(address, (packed.row_scales, bias, out, partials, arrived)),
        *(m, n, k),
        *map(ctypes.c_longlong, (codes.stride(0), scales.stride(0), out.stride(0))),
        blocks,
    ]
    library(text, arch, folder).run(*given)
    assert not arrived.any()
    assert out[:, n:].isnan().all()
    return out[:, :n]
