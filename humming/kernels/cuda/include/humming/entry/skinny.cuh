// The entry of a dense kernel of the family skinny: its signature, and nothing else.
// Run by all threads of the grid.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once

extern "C" __global__ void __launch_bounds__(humming::Config::warps * 32,
                                             humming::Config::blocks_per_sm)
    humming_skinny(const void* __restrict__ x, const void* __restrict__ codes,
                   const void* __restrict__ scales, const void* __restrict__ zero_points,
                   const float* __restrict__ row_scales, const int* __restrict__ permutation,
                   const float* __restrict__ bias, void* __restrict__ out, int m, int n, int k,
                   long long x_row_stride, long long out_row_stride) {
  extern __shared__ humming::Words4 shared[];
  const humming::SkinnyCall call = {
      x,   codes, scales, zero_points, row_scales,   permutation,   bias,
      out, m,     n,      k,           x_row_stride, out_row_stride};
  humming::block_skinny<humming::Config>(humming::ptx::shared_address(shared), call);
}
