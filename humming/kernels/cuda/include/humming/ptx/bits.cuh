// Bit and packed 16-bit arithmetic, one instruction a function.
// Run by one thread.
// Reads -> writes: registers.
// Source: PTX ISA 9.0, lop3 (0xEA is (a & b) | c, 0xAE is (~a & b) | c), prmt, fma, cvt.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

__device__ __forceinline__ u32 and_or(u32 a, u32 b, u32 c) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ u32 andnot_or(u32 a, u32 b, u32 c) {
  u32 d;
  asm("lop3.b32 %0, %1, %2, %3, 0xAE;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ u32 repeat_low(u32 pair) {
  u32 d;
  asm("prmt.b32 %0, %1, %1, 0x1010;" : "=r"(d) : "r"(pair));
  return d;
}
__device__ __forceinline__ u32 repeat_high(u32 pair) {
  u32 d;
  asm("prmt.b32 %0, %1, %1, 0x3232;" : "=r"(d) : "r"(pair));
  return d;
}
// The high byte of either half, in its low byte.
__device__ __forceinline__ u32 high_bytes(u32 pair) {
  u32 d;
  asm("prmt.b32 %0, %1, 0, 0x4341;" : "=r"(d) : "r"(pair));
  return d;
}
__device__ __forceinline__ u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ __forceinline__ u32 pack_bf16x2(float high, float low) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
__device__ __forceinline__ u16 round_f16(float v) {
  u16 d;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(d) : "f"(v));
  return d;
}
__device__ __forceinline__ float widen_f16(u16 v) {
  float d;
  asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(v));
  return d;
}

// No instruction: the compiler no longer knows where `v` is from.
__device__ __forceinline__ void settle(int& v) { asm volatile("" : "+r"(v)); }

}  // namespace humming::ptx
