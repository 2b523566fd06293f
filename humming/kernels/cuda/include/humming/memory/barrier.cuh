// Waiting on a full barrier. Nothing else.
// Run by a whole warp, or any part of it.
// Reads -> writes: a barrier in shared memory -> nothing.
// Source: sm_90 suspends in try_wait; sm_80 polls.
#pragma once
#include "humming/ptx/async.cuh"

namespace humming {

__device__ __forceinline__ void wait_full(u32 barrier, u32 parity) {
#if __CUDA_ARCH__ >= 900
  while (!ptx::mbarrier_try(barrier, parity)) {
  }
#elif __CUDA_ARCH__ >= 800
  while (!ptx::mbarrier_test(barrier, parity)) {
  }
#endif
}

}  // namespace humming
