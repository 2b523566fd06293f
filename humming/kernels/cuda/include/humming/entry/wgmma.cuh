// The entry of a dense kernel of the family wgmma: its signature, and nothing else.
// Run by all threads of the grid.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once

extern "C" __global__ void __launch_bounds__(humming::WgmmaPlan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_wgmma(const __grid_constant__ humming::TensorMap x_map,
                  const __grid_constant__ humming::TensorMap codes_map,
                  const __grid_constant__ humming::TensorMap out_map,
                  const void* __restrict__ scales, const void* __restrict__ zero_points,
                  const float* __restrict__ row_scales, const float* __restrict__ bias, void* out,
                  float* partials, unsigned int* counters, int m, int n, int k, int whole_tiles,
                  int runs, long long out_row_stride, int out_mapped) {
  extern __shared__ humming::Words4 shared[];
  humming::WgmmaCall call = {scales,        zero_points, row_scales, bias, out,         partials,
                             counters,      m,           n,          k,    whole_tiles, runs,
                             out_row_stride};
  if (out_mapped != 0) call.out_map = &out_map;
  humming::block_wgmma<humming::Config>(&x_map, &codes_map, humming::ptx::shared_address(shared),
                                        call);
}
