// The entry of a kernel of the family skinny whose blocks go through tiles of experts: its signature.
// Run by all threads of the grid.
// Reads -> writes: tiles, x, packed experts, bias -> out [rows, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once
#include "humming/mainloop/skinny_walk.cuh"

extern "C" __global__ void __launch_bounds__(humming::Config::warps * 32,
                                             humming::Config::blocks_per_sm)
    humming_skinny(const void* __restrict__ x, const void* __restrict__ codes,
                   const void* __restrict__ scales, const void* __restrict__ zero_points,
                   const float* __restrict__ row_scales, const int* __restrict__ permutation,
                   const float* __restrict__ bias, void* __restrict__ out, const void* tiles,
                   const int* rows, int shared_rows, int n, int k, long long x_row_stride,
                   long long out_row_stride, long long codes_bytes, long long scales_bytes,
                   int experts_in_all) {
  extern __shared__ humming::Words4 shared[];
  humming::SkinnyCall call = {x,   codes, scales, zero_points, row_scales,   permutation,   bias,
                              out, 0,     n,      k,           x_row_stride, out_row_stride};
  call.rows = rows, call.shared = shared_rows;
  const humming::ExpertsCall experts = {tiles, rows, shared_rows, codes_bytes, scales_bytes};
  humming::block_skinny_walk<humming::Config>(humming::ptx::shared_address(shared), call, experts,
                                              experts_in_all);
}
