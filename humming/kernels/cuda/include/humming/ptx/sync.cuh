// What threads of one block, or blocks of one grid, wait, count and share registers by, beside
//   mbarriers, one instruction a function.
// Run by a barrier, every thread that it counts; a counter, one thread; registers, a warpgroup.
// Reads -> writes: named barriers; counters in global memory.
// Source: PTX ISA 9.0, barrier.sync, atom.add, ld.acquire, setmaxnreg (sm_90a).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

template <int threads>
__device__ __forceinline__ void barrier_sync(u32 name) {
  asm volatile("barrier.sync.aligned %0, %1;" ::"r"(name), "n"(threads) : "memory");
}
// The value before.
__device__ __forceinline__ u32 add_global(u32* counter, u32 v) {
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(v)
               : "memory");
  return before;
}
// Of no order with anything else.
__device__ __forceinline__ u32 add_global_relaxed(u32* counter, u32 v) {
  u32 before;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(counter), "r"(v)
               : "memory");
  return before;
}
__device__ __forceinline__ u32 load_global_acquire(const u32* counter) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
  return v;
}

// Registers of each thread of a warpgroup from here on; every warp of it takes part.
template <int registers>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

}  // namespace humming::ptx
