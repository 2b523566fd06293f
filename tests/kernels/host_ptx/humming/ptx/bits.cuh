// The instructions of the kernels' own header as C++: exact products and sums, rounded once.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline u32 and_or(u32 a, u32 b, u32 c) { return (a & b) | c; }
inline u32 andnot_or(u32 a, u32 b, u32 c) { return (~a & b) | c; }
inline u32 high_bytes(u32 pair) { return pair >> 8 & 0x00FF00FF; }
inline u32 repeat_low(u32 pair) { return (pair & 0xFFFF) * 0x10001u; }
inline u32 repeat_high(u32 pair) { return (pair >> 16) * 0x10001u; }

inline float widen_bf16(u16 v) { return __uint_as_float(static_cast<u32>(v) << 16); }
inline float widen_f16(u16 v) {
  const float sign = v >> 15 ? -1.0f : 1.0f;
  const int exponent = v >> 10 & 31, mantissa = v & 1023;
  if (exponent == 31) return sign * (mantissa ? NAN : INFINITY);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}
// `value` as a float of that many exponent and mantissa bits; NaN and ties are no business of
// these tests, as all that is rounded is exact.
inline u16 narrow(double value, int exponent_bits, int mantissa_bits) {
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  value = std::fabs(value);
  if (value == 0) return sign;
  int exponent;
  std::frexp(value, &exponent);
  exponent = exponent - 1 < 1 - bias ? 1 - bias : exponent - 1;
  const double units = std::nearbyint(std::ldexp(value, mantissa_bits - exponent));
  const int magnitude = static_cast<int>(units) + ((exponent + bias - 1) << mantissa_bits);
  const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
  return sign | static_cast<u16>(magnitude < infinity ? magnitude : infinity);
}
inline u16 round_f16(float v) { return narrow(v, 5, 10); }
inline u32 pack_bf16x2(float high, float low) {
  return static_cast<u32>(narrow(high, 8, 7)) << 16 | narrow(low, 8, 7);
}
inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  u32 d = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const double product = static_cast<double>(widen_bf16(a >> shift)) * widen_bf16(b >> shift);
    d |= static_cast<u32>(narrow(product + widen_bf16(c >> shift), 8, 7)) << shift;
  }
  return d;
}
inline u32 fma_f16x2(u32 a, u32 b, u32 c) {
  u32 d = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const double product = static_cast<double>(widen_f16(a >> shift)) * widen_f16(b >> shift);
    d |= static_cast<u32>(narrow(product + widen_f16(c >> shift), 5, 10)) << shift;
  }
  return d;
}

}  // namespace humming::ptx
