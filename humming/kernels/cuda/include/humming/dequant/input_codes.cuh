// Numbers of x -> scales, and the nearest codes. Bit tricks on numbers live here.
// Run by one thread.
// Reads -> writes: registers.
// Source: own; the same in torch is quantize/activations.py, and both give the same bits: scales and
//   quotients by true divisions in fp32, ties to even.
#pragma once
#include "humming/ptx/bytes.cuh"

namespace humming {

// How a scale is made of the largest magnitude that it is for; `fixed`: it is not, one is given.
enum class ScaleKind { plain, power_of_two, under_row, fixed };

// The bits of a magnitude order as it does, and those of no number are the largest.
__device__ __forceinline__ u32 magnitude_bits(float v) { return __float_as_uint(v) & 0x7FFFFFFFu; }

__device__ __forceinline__ float plain_scale(u32 largest_bits, float largest) {
  const float scale = __fdiv_rn(__uint_as_float(largest_bits), largest);
  constexpr float least = 1.17549435e-38f;
  return largest_bits == 0 ? 1.0f : scale < least ? least : scale;
}

// OCP MX v1.0: the power of two that brings it into the last binade, `last`, of the codes.
__device__ __forceinline__ float power_of_two_scale(u32 largest_bits, int last) {
  int exponent;
  frexpf(__uint_as_float(largest_bits), &exponent);
  exponent = min(max(exponent - last, -127), 127);
  return largest_bits == 0 ? 1.0f : ldexpf(1.0f, exponent);
}

template <int exponent_bits, int mantissa_bits>
__device__ __forceinline__ float rounded_to_float(float v, float largest) {
  constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  constexpr u32 smallest = static_cast<u32>(1 - bias + 127) << 23;
  u32 binade = __float_as_uint(v) & 0x7F800000u;
  binade = binade < smallest ? smallest : binade;
  const float magic = copysignf(__uint_as_float(binade) * (1 << (23 - mantissa_bits)), v);
  const float rounded = __fsub_rn(__fadd_rn(v, magic), magic);
  return fminf(fmaxf(rounded, -largest), largest);
}

// The scale of a group, fp8e4m3 under the row's own.
__device__ __forceinline__ float scale_under_row(u32 largest_bits, float largest, float row) {
  const float wanted = __fdiv_rn(__fdiv_rn(__uint_as_float(largest_bits), largest), row);
  const float held = rounded_to_float<4, 3>(fmaxf(wanted, 0.001953125f), 448.0f);
  return (largest_bits == 0 ? 1.0f : held) * row;
}

struct Int8Carrier {
  static __device__ __forceinline__ u32 bytes(const float (&v)[4]) {
    return ptx::pack_s8x4(__float2int_rn(v[0]), __float2int_rn(v[1]), __float2int_rn(v[2]),
                          __float2int_rn(v[3]));
  }
};
struct E4m3Carrier {
  static __device__ __forceinline__ u32 bytes(const float (&v)[4]) {
    return ptx::round_e4m3x2(v[0], v[1]) | static_cast<u32>(ptx::round_e4m3x2(v[2], v[3])) << 16;
  }
};
struct E5m2Carrier {
  static __device__ __forceinline__ u32 bytes(const float (&v)[4]) {
    return ptx::round_e5m2x2(v[0], v[1]) | static_cast<u32>(ptx::round_e5m2x2(v[2], v[3])) << 16;
  }
};

// Codes of whole numbers; `largest` either way.
struct InputIntegers {
  static __device__ __forceinline__ float rounded(float v, float largest) {
    return fminf(fmaxf(rintf(v), -largest), largest);
  }
  // In the low four bits.
  static __device__ __forceinline__ u32 nibble(float v) { return __float2int_rn(v) & 15; }
};

// Codes that the carrier's conversion rounds and saturates alone.
struct InputAsConverted {
  static __device__ __forceinline__ float rounded(float v, float) { return v; }
};

template <int exponent_bits, int mantissa_bits>
struct InputFloats {
  static __device__ __forceinline__ float rounded(float v, float largest) {
    return rounded_to_float<exponent_bits, mantissa_bits>(v, largest);
  }
  // Of fp4e2m1: above one the top of fp32's own pattern under another bias, below it halves.
  static __device__ __forceinline__ u32 nibble(float v) {
    const u32 bits = magnitude_bits(v);
    const u32 code = bits >= 0x3F800000u ? (bits >> 22) - 252 : static_cast<u32>(fabsf(v) * 2.0f);
    return code | (v < 0.0f ? 8u : 0u);
  }
};

}  // namespace humming
