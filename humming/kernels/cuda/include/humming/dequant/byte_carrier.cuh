// The types of 8 and 4 bits that tensor cores multiply: how they are multiplied, and how a group's
//   sums become fp32. No codes of weights here.
// Run by a whole converged warp (products); by one thread.
// Reads -> writes: registers.
// Source: own. Whole sums begin at the bits of 1.5 * 2^23: below 2^22 either way they are then the
//   bits of that float plus the sum, which one subtraction gives back exactly.
#pragma once
#include "humming/ptx/bytes.cuh"

namespace humming {

// Sums of a group of at most 128 columns are promoted, those over all of k `plain`.
struct IntegerSums {
  using Sum = int;
  static constexpr bool is_integer = true, block_scaled = false;
  static constexpr int least = 0;
  static constexpr int first = 0x4B400000;
  static __device__ __forceinline__ float promoted(int sum) {
    return __int_as_float(sum) - 12582912.0f;
  }
  static __device__ __forceinline__ float plain(int sum) { return static_cast<float>(sum); }
};

struct FloatSums {
  using Sum = float;
  static constexpr bool is_integer = false;
  static constexpr bool block_scaled = false;
  static constexpr float first = 0.0f;
  static __device__ __forceinline__ float promoted(float sum) { return sum; }
  static __device__ __forceinline__ float plain(float sum) { return sum; }
};

struct Int8Products : IntegerSums {
  static constexpr int x_bits = 8;
  static constexpr int least_arch = 750;
  static __device__ __forceinline__ void warp_multiply(int (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2], const int (&c)[4]) {
#if __CUDA_ARCH__ >= 800
    ptx::mma_m16n8k32_s8(d, a, b, c);
#else
    int e[4];
    ptx::mma_m8n8k16_s8(e[0], e[1], a[0], b[0], c[0], c[1]);
    ptx::mma_m8n8k16_s8(e[2], e[3], a[1], b[0], c[2], c[3]);
    ptx::mma_m8n8k16_s8(d[0], d[1], a[2], b[1], e[0], e[1]);
    ptx::mma_m8n8k16_s8(d[2], d[3], a[3], b[1], e[2], e[3]);
#endif
  }
};

// Of 4-bit codes, two a byte, as they are stored: 64 columns a step.
struct Int4Products : IntegerSums {
  static constexpr int x_bits = 4;
  static constexpr int least_arch = 750;
  static __device__ __forceinline__ void warp_multiply(int (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2], const int (&c)[4]) {
#if __CUDA_ARCH__ >= 800
    ptx::mma_m16n8k64_s4(d, a, b, c);
#else
    int e[4];
    ptx::mma_m8n8k32_s4(e[0], e[1], a[0], b[0], c[0], c[1]);
    ptx::mma_m8n8k32_s4(e[2], e[3], a[1], b[0], c[2], c[3]);
    ptx::mma_m8n8k32_s4(d[0], d[1], a[2], b[1], e[0], e[1]);
    ptx::mma_m8n8k32_s4(d[2], d[3], a[3], b[1], e[2], e[3]);
#endif
  }
};

struct E4m3Products : FloatSums {
  static constexpr int x_bits = 8;
  static constexpr int least_arch = 890;
  static constexpr int exponent_bits = 4, mantissa_bits = 3, exponent_bias = 7, least = -9;
  static __device__ __forceinline__ void warp_multiply(float (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2], const float (&c)[4]) {
    ptx::mma_m16n8k32_e4m3(d, a, b, c);
  }
};

struct E5m2Products : FloatSums {
  static constexpr int x_bits = 8;
  static constexpr int least_arch = 890;
  static constexpr int exponent_bits = 5, mantissa_bits = 2, exponent_bias = 15, least = -16;
  static __device__ __forceinline__ void warp_multiply(float (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2], const float (&c)[4]) {
    ptx::mma_m16n8k32_e5m2(d, a, b, c);
  }
};

// Of fp4e2m1 in groups of `group` columns, whose scales tensor cores take along: of 16 fp8e4m3, of 32
// powers of two.
template <int group_>
struct Fp4Products : FloatSums {
  static constexpr int x_bits = 4, group = group_, groups = 64 / group;
  static constexpr int least_arch = 1200;
  static constexpr bool block_scaled = true;

  static __device__ __forceinline__ void warp_multiply(float (&d)[4], const u32 (&a)[4],
                                                       const u32 (&b)[2], u32 sa, u32 sb) {
#if HUMMING_HAS_FP4
    if constexpr (group == 16) {
      ptx::mma_m16n8k64_nvfp4(d, a, b, sa, sb);
    } else {
      ptx::mma_m16n8k64_mxfp4(d, a, b, sa, sb);
    }
#endif
  }

  // The bytes of a step's scales, which are such numbers.
  static __device__ __forceinline__ u32 bytes(const float (&scales)[groups]) {
    if constexpr (group == 16) {
      return ptx::round_e4m3x2(scales[0], scales[1]) |
             static_cast<u32>(ptx::round_e4m3x2(scales[2], scales[3])) << 16;
    } else {
      return (__float_as_uint(scales[0]) >> 23 & 255) | (__float_as_uint(scales[1]) >> 15 & 0xFF00);
    }
  }
};

}  // namespace humming
