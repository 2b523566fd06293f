// What a warpgroup multiplies in an activation's type: weights in registers, x in shared memory.
// Run by a warpgroup: four converged warps, the first a multiple of four.
// Reads -> writes: A fragment registers, x through a descriptor -> accumulators, asynchronously.
// Source: own.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/ptx/warpgroup_wide.cuh"

namespace humming {

template <class Activation>
struct WarpgroupProduct;

template <>
struct WarpgroupProduct<Bf16> {
  template <int columns>
  static __device__ __forceinline__ void add(float (&d)[columns][4], const u32 (&a)[4], u64 b) {
    ptx::wgmma_k16_bf16(d, a, b);
  }
};

template <>
struct WarpgroupProduct<Fp16> {
  template <int columns>
  static __device__ __forceinline__ void add(float (&d)[columns][4], const u32 (&a)[4], u64 b) {
    ptx::wgmma_k16_f16(d, a, b);
  }
};

}  // namespace humming
