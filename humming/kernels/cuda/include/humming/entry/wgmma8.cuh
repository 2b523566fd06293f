// The entry of a dense kernel of the family wgmma8: its signature, and nothing else.
// Run by all threads of the grid.
// Reads -> writes: codes and scales of x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once

extern "C" __global__ void __launch_bounds__(humming::Wgmma8Plan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_wgmma8(const __grid_constant__ humming::TensorMap x_map,
                   const __grid_constant__ humming::TensorMap codes_map,
                   const __grid_constant__ humming::TensorMap x_scales_map,
                   const void* __restrict__ scales, const float* __restrict__ row_scales,
                   const float* __restrict__ x_scales, const float* __restrict__ bias, void* out,
                   float* partials, unsigned int* counters, int m, int n, int k, int whole_tiles,
                   int runs, long long out_row_stride) {
  extern __shared__ humming::Words4 shared[];
  humming::Wgmma8Call call;
  call.scales = scales;
  call.row_scales = row_scales;
  call.bias = bias;
  call.out = out;
  call.partials = partials;
  call.counters = counters;
  call.m = m;
  call.n = n;
  call.k = k;
  call.whole_tiles = whole_tiles;
  call.runs = runs;
  call.out_row_stride = out_row_stride;
  call.x_scales = x_scales;
  humming::block_wgmma8<humming::Config>({&x_map, &codes_map, &x_scales_map},
                                         humming::ptx::shared_address(shared), call);
}
