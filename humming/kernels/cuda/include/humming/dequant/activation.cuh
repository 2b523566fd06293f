// The activation's 16-bit type: how it widens, rounds and multiplies. No codes here.
// Run by one thread; multiply: a whole warp.
// Reads -> writes: registers.
// Source: bf16 is the upper half of fp32.
#pragma once
#include "humming/ptx/bits.cuh"
#include "humming/ptx/matrix.cuh"
#include "humming/ptx/warpgroup.cuh"

namespace humming {

// Of both types, twice: a product plus this keeps its sign.
constexpr u32 negative_zero = 0x80008000u;

struct Bf16 {
  static constexpr int least_arch = 800;
  static constexpr int mantissa_bits = 7, exponent_bits = 8, exponent_bias = 127;
  static __device__ __forceinline__ float widen(u16 v) {
    return __uint_as_float(static_cast<u32>(v) << 16);
  }
  static __device__ __forceinline__ u32 pack(float low, float high) {
    return ptx::pack_bf16x2(high, low);
  }
  static __device__ __forceinline__ u32 fma(u32 a, u32 b, u32 c) {
    return ptx::fma_bf16x2(a, b, c);
  }
  static __device__ __forceinline__ void warp_multiply(float (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2]) {
    ptx::mma_m16n8k16_bf16(d, a, b);
  }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static __device__ __forceinline__ void group_multiply(float (&d)[1][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n8k16_bf16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[2][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n16k16_bf16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[3][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n24k16_bf16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[4][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n32k16_bf16(d, a, b);
  }
#endif
};

struct Fp16 {
  static constexpr int least_arch = 750;
  static constexpr int mantissa_bits = 10, exponent_bits = 5, exponent_bias = 15;
  static __device__ __forceinline__ float widen(u16 v) { return ptx::widen_f16(v); }
  static __device__ __forceinline__ u32 pack(float low, float high) {
    return static_cast<u32>(ptx::round_f16(low)) | static_cast<u32>(ptx::round_f16(high)) << 16;
  }
  static __device__ __forceinline__ u32 fma(u32 a, u32 b, u32 c) { return ptx::fma_f16x2(a, b, c); }
  static __device__ __forceinline__ void warp_multiply(float (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    ptx::mma_m16n8k16_f16(d, a, b);
#else
    ptx::mma_m16n8k8_f16(d, a[0], a[1], b[0]);
    ptx::mma_m16n8k8_f16(d, a[2], a[3], b[1]);
#endif
  }
  // With sums in this type.
  static __device__ __forceinline__ void warp_multiply(u32 (&d)[2], const u32 (&a)[4],
                                                       const u32 (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    ptx::mma_m16n8k16_f16_f16(d, a, b);
#else
    ptx::mma_m16n8k8_f16_f16(d, a[0], a[1], b[0]);
    ptx::mma_m16n8k8_f16_f16(d, a[2], a[3], b[1]);
#endif
  }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static __device__ __forceinline__ void group_multiply(float (&d)[1][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n8k16_f16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[2][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n16k16_f16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[3][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n24k16_f16(d, a, b);
  }
  static __device__ __forceinline__ void group_multiply(float (&d)[4][4], const u32 (&a)[4],
                                                        u64 b) {
    ptx::wgmma_m64n32k16_f16(d, a, b);
  }
#endif
};

}  // namespace humming
