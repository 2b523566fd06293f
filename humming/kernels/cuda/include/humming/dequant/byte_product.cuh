// What a warpgroup multiplies in 8 bits: weights in registers or in shared memory, x in shared memory.
// Run by a warpgroup: four converged warps, the first a multiple of four.
// Reads -> writes: A fragment registers or a descriptor, x through a descriptor -> accumulators,
//   asynchronously; `keep` 0 begins them anew.
// Source: own.
#pragma once
#include "humming/dequant/group_bytes.cuh"
#include "humming/ptx/warpgroup.cuh"
#include "humming/ptx/warpgroup_bytes.cuh"

namespace humming {

// By the weights' type; x is e4m3, or int8 for integers.
template <class Weights>
struct ByteProduct;

template <>
struct ByteProduct<E4m3> {
  using Sum = float;
  static constexpr bool whole = false;
  template <int keep, int columns, class A>
  static __device__ __forceinline__ void add(float (&d)[columns][4], const A& a, u64 b) {
    ptx::wgmma_k32_e4m3<keep>(d, a, b);
  }
};

template <>
struct ByteProduct<E5m2> {
  using Sum = float;
  static constexpr bool whole = false;
  template <int keep, int columns, class A>
  static __device__ __forceinline__ void add(float (&d)[columns][4], const A& a, u64 b) {
    ptx::wgmma_k32_e5m2<keep>(d, a, b);
  }
};

template <>
struct ByteProduct<Int8> {
  using Sum = int;
  static constexpr bool whole = true;
  template <int keep, int columns, class A>
  static __device__ __forceinline__ void add(int (&d)[columns][4], const A& a, u64 b) {
    ptx::wgmma_k32_s8<keep>(d, a, b);
  }
};

}  // namespace humming
