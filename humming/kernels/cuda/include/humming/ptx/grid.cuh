// Cooperation between blocks: clusters, their shared memory, and dependent launches, one
//   instruction a function.
// Run by barriers, every thread of the cluster; the rest, any thread.
// Reads -> writes: registers <-> another block's shared memory.
// Source: PTX ISA 9.0, barrier.cluster, mapa, ld, st and st.async, griddepcontrol (sm_90).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 cluster_map(u32 shared_address, u32 rank) {
  u32 mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(mapped)
               : "r"(shared_address), "r"(rank));
  return mapped;
}
__device__ __forceinline__ void store_cluster_f32x2(u32 mapped, float2 v) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1,%2};" ::"r"(mapped), "f"(v.x), "f"(v.y)
               : "memory");
}
__device__ __forceinline__ Words4 load_cluster_words4(u32 mapped) {
  Words4 v;
  asm volatile("ld.shared::cluster.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
               : "r"(mapped)
               : "memory");
  return v;
}
// Completes on a barrier of the same block as the address.
__device__ __forceinline__ void store_cluster_async(u32 mapped, const float (&v)[4], u32 barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(mapped),
      "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(barrier)
      : "memory");
}
// Arrives at a barrier of another block, or of this one. Of the block's scope: what a cluster's scope
// adds is a fence of all memory.
__device__ __forceinline__ void cluster_barrier_arrive(u32 mapped) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}
__device__ __forceinline__ void grid_dependency_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void grid_dependency_release() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace humming::ptx
