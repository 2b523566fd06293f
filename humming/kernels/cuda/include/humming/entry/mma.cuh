// The entry of a dense kernel of the family mma: its signature, and nothing else.
// Run by all threads of the grid.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once

extern "C" __global__ void __launch_bounds__(humming::MmaPlan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_mma(const void* __restrict__ x, const void* __restrict__ codes,
                const void* __restrict__ scales, const void* __restrict__ zero_points,
                const float* __restrict__ row_scales, const float* __restrict__ bias,
                void* __restrict__ out, float* partials, unsigned int* arrived, int m, int n, int k,
                long long x_row_stride, long long out_row_stride) {
  extern __shared__ humming::Words4 shared[];
  const humming::MmaCall call = {x,    codes, scales,       zero_points,   row_scales,
                                 bias, out,   partials,     arrived,       m,
                                 n,    k,     x_row_stride, out_row_stride};
  humming::block_mma<humming::Config>(humming::ptx::shared_address(shared), call);
}

extern "C" __global__ void __launch_bounds__(256)
    humming_mma_add(const float* __restrict__ row_scales, const float* __restrict__ bias,
                    void* __restrict__ out, float* __restrict__ partials, int m, int n,
                    long long out_row_stride) {
  const humming::MmaCall call = {nullptr, nullptr, nullptr,  nullptr,       row_scales,
                                 bias,    out,     partials, nullptr,       m,
                                 n,       0,       0,        out_row_stride};
  humming::block_add_partials<humming::Config>(call);
}
