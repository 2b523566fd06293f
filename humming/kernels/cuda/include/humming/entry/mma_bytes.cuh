// The entry of a kernel of the family mma that multiplies codes: its signature, and nothing else.
// Run by all threads of the grid.
// Reads -> writes: codes and scales of x [m, k] and w, bias -> out [m, n].
// Source: own. Config is the rendered block of constants that includes this.
#pragma once

extern "C" __global__ void __launch_bounds__(humming::MmaPlan<humming::Config>::threads,
                                             humming::Config::blocks_per_sm)
    humming_mma(const void* __restrict__ x, const float* __restrict__ x_scales,
                const void* __restrict__ codes, const void* __restrict__ scales,
                const void* __restrict__ zero_points, const float* __restrict__ row_scales,
                const float* __restrict__ bias, void* __restrict__ out, float* partials,
                unsigned int* arrived, int m, int n, int k, long long x_row_bytes,
                long long x_scales_pitch, long long out_row_stride) {
  extern __shared__ humming::Words4 shared[];
  humming::MmaCall call = {x,    codes, scales,      zero_points,   row_scales,
                           bias, out,   partials,    arrived,       m,
                           n,    k,     x_row_bytes, out_row_stride};
  call.x_scales = x_scales, call.x_scales_pitch = x_scales_pitch;
  call.x_row_scales = x_scales + humming::MmaPlan<humming::Config>::groups_of_x(k) * x_scales_pitch;
  humming::block_mma<humming::Config>(humming::ptx::shared_address(shared), call);
}

extern "C" __global__ void __launch_bounds__(256)
    humming_mma_add(const float* __restrict__ x_row_scales, const float* __restrict__ row_scales,
                    const float* __restrict__ bias, void* __restrict__ out,
                    float* __restrict__ partials, int m, int n, long long out_row_stride) {
  humming::MmaCall call = {nullptr,  nullptr, nullptr, nullptr, row_scales, bias, out,
                           partials, nullptr, m,       n,       0,          0,    out_row_stride};
  call.x_row_scales = x_row_scales;
  humming::block_add_partials<humming::Config>(call);
}
