// Pairs of 16-bit integers in a register, one instruction a function.
// Run by one thread.
// Reads -> writes: registers.
// Source: PTX ISA 9.0, add.s16x2 and max.s16x2 (sm_90).
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

__device__ __forceinline__ u32 add_s16x2(u32 a, u32 b) {
  u32 d;
  asm("add.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
__device__ __forceinline__ u32 max_s16x2(u32 a, u32 b) {
  u32 d;
  asm("max.s16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

}  // namespace humming::ptx
