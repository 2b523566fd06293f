// Asynchronous copies into shared memory and the barriers that they complete on, one instruction a
//   function.
// Run by one thread (copies, arrivals); any thread may wait.
// Reads -> writes: global -> shared memory.
// Source: PTX ISA 9.0, cp.async, mbarrier (sm_80).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

__device__ __forceinline__ void cp_async_16(u32 shared_address, const void* global,
                                            u32 source_bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(global),
               "r"(source_bytes)
               : "memory");
}
__device__ __forceinline__ void cp_async_streamed(u32 shared_address, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared_address),
               "l"(global)
               : "memory");
}
__device__ __forceinline__ void cp_async_16_if(bool wanted, u32 shared_address, const void* global,
                                               u32 source_bytes) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %3, 0; @p cp.async.cg.shared.global [%0], [%1], 16, %2; }" ::
          "r"(shared_address),
      "l"(global), "r"(source_bytes), "r"(static_cast<u32>(wanted))
      : "memory");
}
__device__ __forceinline__ void cp_async_4_if(bool wanted, u32 shared_address, const void* global) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.ca.shared.global [%0], [%1], 4; }" ::"r"(
          shared_address),
      "l"(global), "r"(static_cast<u32>(wanted))
      : "memory");
}
__device__ __forceinline__ void cp_async_streamed_if(bool wanted, u32 shared_address,
                                                     const void* global) {
  asm volatile(
      "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16; "
      "}" ::"r"(shared_address),
      "l"(global), "r"(static_cast<u32>(wanted))
      : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int pending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
__device__ __forceinline__ void cp_async_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ bool mbarrier_test(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}
__device__ __forceinline__ bool mbarrier_try(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}

}  // namespace humming::ptx
