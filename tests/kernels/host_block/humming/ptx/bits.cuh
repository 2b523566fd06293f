// Conversions and packed 16-bit arithmetic of the kernels' own header.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline u32 and_or(u32 a, u32 b, u32 c) { return (a & b) | c; }
inline u32 andnot_or(u32 a, u32 b, u32 c) { return (~a & b) | c; }
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
template <class Widen, class Round>
u32 fma_in_halves(u32 a, u32 b, u32 c, Widen widen, Round round) {
  u32 d = 0;
  for (int half = 0; half < 32; half += 16) {
    const double product =
        static_cast<double>(widen(a >> half & 0xFFFF)) * widen(b >> half & 0xFFFF);
    d |= static_cast<u32>(round(static_cast<float>(product + widen(c >> half & 0xFFFF)))) << half;
  }
  return d;
}
inline u32 fma_bf16x2(u32 a, u32 b, u32 c) {
  return fma_in_halves(a, b, c, host::bf16, round_bf16);
}
inline u32 fma_f16x2(u32 a, u32 b, u32 c) { return fma_in_halves(a, b, c, host::f16, round_f16); }

}  // namespace humming::ptx
