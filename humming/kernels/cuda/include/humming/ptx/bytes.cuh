// Tensor-core products of 8-bit and 4-bit operands, and conversions to 8 bits, one instruction a
//   function.
// Run by a whole converged warp (products); by one thread (conversions).
// Reads -> writes: registers; fragments as in the PTX ISA, "mma.m16n8k32" and "mma.m16n8k64".
// Source: PTX ISA 9.0, mma (int8, int4: sm_80, their halves sm_75; fp8: sm_89), cvt, cvt.pack.
#pragma once
#include "humming/ptx/types.cuh"

// Tensor cores of compute capability 12.0 and 12.1 alone have them.
#if defined(__CUDA_ARCH_SPECIFIC__) && \
    (__CUDA_ARCH_SPECIFIC__ == 1200 || __CUDA_ARCH_SPECIFIC__ == 1210)
#define HUMMING_HAS_FP4 1
#else
#define HUMMING_HAS_FP4 0
#endif

namespace humming::ptx {

__device__ __forceinline__ void mma_m16n8k32_s8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                                                const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}
// Of eight rows and 16 columns: what Turing has.
__device__ __forceinline__ void mma_m8n8k16_s8(int& d0, int& d1, u32 a, u32 b, int c0, int c1) {
  asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d0), "=r"(d1)
      : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
__device__ __forceinline__ void mma_m16n8k64_s4(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                                                const int (&c)[4]) {
  asm("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
}
__device__ __forceinline__ void mma_m8n8k32_s4(int& d0, int& d1, u32 a, u32 b, int c0, int c1) {
  asm("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32 {%0,%1}, {%2}, {%3}, {%4,%5};"
      : "=r"(d0), "=r"(d1)
      : "r"(a), "r"(b), "r"(c0), "r"(c1));
}
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const u32 (&a)[4],
                                                  const u32 (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k32_e5m2(float (&d)[4], const u32 (&a)[4],
                                                  const u32 (&b)[2], const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// Products of fp4e2m1 with scales of their own along k: bytes of `sa`, of row lane / 4 in even lanes
// and eight further in odd ones, and of `sb`, of column lane / 4; a byte for 16 columns, e4m3.
#if HUMMING_HAS_FP4
__device__ __forceinline__ void mma_m16n8k64_nvfp4(float (&d)[4], const u32 (&a)[4],
                                                   const u32 (&b)[2], u32 sa, u32 sb) {
  asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1"
      ".f32.ue4m3 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {%12,%12}, {%11}, "
      "{%12,%12};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "r"(sb), "n"(0));
}
// The same with a byte for 32 columns, e8m0.
__device__ __forceinline__ void mma_m16n8k64_mxfp4(float (&d)[4], const u32 (&a)[4],
                                                   const u32 (&b)[2], u32 sa, u32 sb) {
  asm("mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1"
      ".f32.ue8m0 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, {%10}, {%12,%12}, {%11}, "
      "{%12,%12};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sa), "r"(sb), "n"(0));
}
#endif

// Two bytes, `low` in the low one.
__device__ __forceinline__ u16 round_e4m3x2(float low, float high) {
  u16 d;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(d) : "f"(high), "f"(low));
  return d;
}
__device__ __forceinline__ u16 round_e5m2x2(float low, float high) {
  u16 d;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(d) : "f"(high), "f"(low));
  return d;
}
// Four bytes of whole numbers, saturated; v0 in the lowest.
__device__ __forceinline__ u32 pack_s8x4(int v0, int v1, int v2, int v3) {
  u32 high, d;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(v3), "r"(v2));
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(v1), "r"(v0), "r"(high));
  return d;
}
// Bytes of the eight of `low` and `high`, picked by the nibbles of `selector`.
__device__ __forceinline__ u32 pick_bytes(u32 low, u32 high, u32 selector) {
  u32 d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(low), "r"(high), "r"(selector));
  return d;
}

}  // namespace humming::ptx
