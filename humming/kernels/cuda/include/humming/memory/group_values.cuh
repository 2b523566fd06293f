// One number a row and a group of k, as layout cuda_n16k64 packs scales and zero points: what a
//   fragment's rows need of them.
// Run by one thread, of group g = lane / 4 of its warp.
// Reads -> writes: packed 16-bit pairs [row tile][group][8][2] in global memory -> registers.
// Source: own.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming {

struct GroupValues {
  const char* pairs;  // of this lane's rows g and g + 8, in the row tile's first group

  __device__ __forceinline__ GroupValues(const void* packed, i64 row_tile, int groups, int lane)
      : pairs(static_cast<const char*>(packed) + row_tile * groups * 32 + lane / 4 * 4) {}

  // Row g in the low half, row g + 8 in the high half.
  __device__ __forceinline__ u32 pair(int group) const {
    return ptx::load_global_u32(pairs + static_cast<i64>(group) * 32);
  }
};

}  // namespace humming
