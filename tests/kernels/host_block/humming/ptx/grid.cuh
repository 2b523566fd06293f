// No clusters on the host; the kernel before, if there is one, ends when it is waited for.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline void cluster_arrive() {}
inline void cluster_arrive_relaxed() {}
inline void store_cluster_f32x2(u32, float2) {}
inline void cluster_wait() {}
inline u32 cluster_map(u32 address, u32) { return address; }
inline Words4 load_cluster_words4(u32) { return {}; }
inline void grid_dependency_wait() {
  if (host::kernel_before) host::kernel_before();
}
inline void grid_dependency_release() {}

}  // namespace humming::ptx
