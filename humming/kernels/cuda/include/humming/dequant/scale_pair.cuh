// The scales of rows g and g + 8 of a row tile, each twice in a register, as packed products take
//   them.
// Run by one thread.
// Reads -> writes: registers.
// Source: own.
#pragma once
#include "humming/ptx/bits.cuh"

namespace humming {

struct ScalePair {
  u32 low, high;

  static __device__ __forceinline__ ScalePair of(u32 pair) {
    return {ptx::repeat_low(pair), ptx::repeat_high(pair)};
  }
};

}  // namespace humming
