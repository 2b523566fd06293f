// The store that makes reading count: a compiler cannot know that it never happens.
// Run by every thread.
// Reads -> writes: registers -> one word in global memory.
// Source: own.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming {

__device__ __forceinline__ void store_if_magic(u32 mixed, void* sink) {
  if (mixed == 0x9E3779B9u) ptx::store_global_u32(sink, mixed);
}

}  // namespace humming
