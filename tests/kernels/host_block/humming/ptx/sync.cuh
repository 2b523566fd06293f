// Counters of the kernels' own header: blocks follow each other here.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline u32 add_global(u32* counter, u32 v) {
  const u32 before = *counter;
  *counter += v;
  return before;
}
inline u32 load_global_acquire(const u32* counter) { return *counter; }

}  // namespace humming::ptx
