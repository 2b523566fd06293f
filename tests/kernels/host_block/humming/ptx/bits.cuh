// Conversions of the kernels' own header; products of 16 bits are no business of these tests.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline u32 and_or(u32 a, u32 b, u32 c) { return (a & b) | c; }
inline u32 andnot_or(u32 a, u32 b, u32 c) { return (~a & b) | c; }
inline u32 fma_bf16x2(u32 a, u32, u32) { return a; }
inline u32 fma_f16x2(u32 a, u32, u32) { return a; }
inline u32 repeat_low(u32 pair) { return (pair & 0xFFFF) * 0x10001u; }
inline u32 repeat_high(u32 pair) { return (pair >> 16) * 0x10001u; }
inline void settle(int&) {}
inline u16 round_bf16(float v) {
  const u32 bits = host::from<u32>(&v);
  return static_cast<u16>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline u32 pack_bf16x2(float high, float low) {
  return round_bf16(low) | static_cast<u32>(round_bf16(high)) << 16;
}
inline float widen_f16(u16 v) {
  _Float16 half;
  std::memcpy(&half, &v, 2);
  return static_cast<float>(half);
}
inline u16 round_f16(float v) {
  const _Float16 half = static_cast<_Float16>(v);
  return host::from<u16>(&half);
}

}  // namespace humming::ptx
