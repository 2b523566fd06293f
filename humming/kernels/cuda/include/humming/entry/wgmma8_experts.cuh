// The entry of a kernel of the family wgmma8 for the experts of a mixture: its signature.
// Run by all threads of the grid.
// Reads -> writes: tiles, codes and scales of x, packed experts, bias -> out [rows, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once
#include "humming/mainloop/wgmma8_experts.cuh"

extern "C" __global__ void __launch_bounds__(humming::Wgmma8Plan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_wgmma8(const __grid_constant__ humming::TensorMap codes_map,
                   const __grid_constant__ humming::TensorMap scales_map,
                   const void* __restrict__ x, const float* __restrict__ x_scales,
                   const void* __restrict__ scales, const float* __restrict__ row_scales,
                   const float* __restrict__ bias, void* out, const void* tiles, const int* rows,
                   int shared_rows, int n, int k, long long x_row_bytes, long long out_row_stride,
                   long long codes_bytes, long long scales_bytes, long long x_scales_pitch) {
  extern __shared__ humming::Words4 shared[];
  humming::Wgmma8Call call{};
  call.scales = scales;
  call.row_scales = row_scales;
  call.bias = bias;
  call.out = out;
  call.n = n;
  call.k = k;
  call.out_row_stride = out_row_stride;
  call.x_scales = x_scales;
  const humming::ExpertsCall experts = {tiles, rows, shared_rows, codes_bytes, scales_bytes};
  humming::block_wgmma8_experts<humming::Config>(
      {nullptr, &codes_map, &scales_map}, {x, x_row_bytes, x_scales_pitch},
      humming::ptx::shared_address(shared), call, experts);
}
