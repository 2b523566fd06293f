// The entry of a kernel of the family mma that multiplies codes of experts: its signature.
// Run by all threads of the grid.
// Reads -> writes: tiles, codes and scales of x, packed experts, bias -> out [rows, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once
#include "humming/mainloop/mma_experts.cuh"

extern "C" __global__ void __launch_bounds__(humming::MmaPlan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_mma(const void* __restrict__ x, const float* __restrict__ x_scales,
                const void* __restrict__ codes, const void* __restrict__ scales,
                const void* __restrict__ zero_points, const float* __restrict__ row_scales,
                const float* __restrict__ bias, void* __restrict__ out, const void* tiles,
                const int* rows, int most_tiles, int shared_rows, int n, int k,
                long long x_row_bytes, long long out_row_stride, long long codes_bytes,
                long long scales_bytes, long long x_scales_pitch) {
  extern __shared__ humming::Words4 shared[];
  humming::MmaCall call = {x,    codes, scales,      zero_points,   row_scales,
                           bias, out,   nullptr,     nullptr,       0,
                           n,    k,     x_row_bytes, out_row_stride};
  call.tiles = most_tiles;
  call.x_scales = x_scales, call.x_scales_pitch = x_scales_pitch;
  call.x_row_scales = x_scales + humming::MmaPlan<humming::Config>::groups_of_x(k) * x_scales_pitch;
  const humming::ExpertsCall experts = {tiles, rows, shared_rows, codes_bytes, scales_bytes};
  humming::block_mma_experts<humming::Config>(humming::ptx::shared_address(shared), call, experts);
}
