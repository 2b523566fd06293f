// No clusters on the host, and no kernel that another waits for.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline void cluster_arrive() {}
inline void cluster_wait() {}
inline u32 cluster_map(u32 address, u32) { return address; }
inline Words4 load_cluster_words4(u32) { return {}; }
inline void grid_dependency_wait() {}
inline void grid_dependency_release() {}

}  // namespace humming::ptx
