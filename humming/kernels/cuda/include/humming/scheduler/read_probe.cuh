// Which chunks of a buffer a thread reads. The only reader of blockIdx of the read probe.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

struct ReadShare {
  i64 first;  // chunk of this thread
  i64 step;   // threads of the grid
};

__device__ __forceinline__ ReadShare read_share() {
  return {static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<i64>(gridDim.x) * blockDim.x};
}

}  // namespace humming
