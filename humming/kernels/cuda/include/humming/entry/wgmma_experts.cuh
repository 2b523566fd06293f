// The entry of a kernel of the family wgmma for the experts of a mixture: its signature.
// Run by all threads of the grid.
// Reads -> writes: tiles, x, packed experts, bias -> out [rows, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once
#include "humming/mainloop/wgmma_experts.cuh"

extern "C" __global__ void __launch_bounds__(humming::WgmmaPlan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_wgmma(const __grid_constant__ humming::TensorMap codes_map, const void* __restrict__ x,
                  const void* __restrict__ scales, const void* __restrict__ zero_points,
                  const float* __restrict__ row_scales, const float* __restrict__ bias, void* out,
                  const void* tiles, const int* rows, int shared_rows, int n, int k,
                  long long x_row_stride, long long out_row_stride, long long codes_bytes,
                  long long scales_bytes) {
  extern __shared__ humming::Words4 shared[];
  const humming::WgmmaCall call = {
      scales, zero_points, row_scales, bias, out, nullptr, nullptr, 0, n, k, 0, 0, out_row_stride};
  const humming::ExpertsCall experts = {tiles, rows, shared_rows, codes_bytes, scales_bytes};
  humming::block_wgmma_experts<humming::Config>(
      &codes_map, x, x_row_stride, humming::ptx::shared_address(shared), call, experts);
}
