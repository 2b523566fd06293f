// Products of 8 and 4 bits, and conversions, of the kernels' own header.
#pragma once
#include "humming/ptx/types.cuh"
#if defined(__CUDA_ARCH_SPECIFIC__) && __CUDA_ARCH_SPECIFIC__ == 1200
#define HUMMING_HAS_FP4 1
#else
#define HUMMING_HAS_FP4 0
#endif

namespace humming::ptx {

inline void mma_m16n8k32_s8(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const int (&c)[4]) {
  host::multiply<8>(d, a, b, c, host::s8, 0, 0, host::unscaled);
}
inline void mma_m16n8k64_s4(int (&d)[4], const u32 (&a)[4], const u32 (&b)[2], const int (&c)[4]) {
  host::multiply<4>(d, a, b, c, host::s4, 0, 0, host::unscaled);
}
inline void mma_m8n8k16_s8(int& d0, int& d1, u32 a, u32 b, int c0, int c1) {
  host::multiply_8<8>(d0, d1, a, b, c0, c1, host::s8);
}
inline void mma_m8n8k32_s4(int& d0, int& d1, u32 a, u32 b, int c0, int c1) {
  host::multiply_8<4>(d0, d1, a, b, c0, c1, host::s4);
}
inline void mma_m16n8k32_e4m3(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                              const float (&c)[4]) {
  host::multiply<8>(d, a, b, c, host::e4m3, 0, 0, host::unscaled);
}
inline void mma_m16n8k32_e5m2(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2],
                              const float (&c)[4]) {
  host::multiply<8>(d, a, b, c, host::e5m2, 0, 0, host::unscaled);
}
inline void mma_m16n8k64_nvfp4(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 sa,
                               u32 sb) {
  host::multiply<4>(d, a, b, d, host::e2m1, sa, sb, [](u32 of_w, u32 of_x, int k) {
    return static_cast<double>(host::e4m3(of_w >> k / 16 * 8 & 255)) *
           host::e4m3(of_x >> k / 16 * 8 & 255);
  });
}
inline void mma_m16n8k64_mxfp4(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], u32 sa,
                               u32 sb) {
  host::multiply<4>(d, a, b, d, host::e2m1, sa, sb, [](u32 of_w, u32 of_x, int k) {
    const int w = of_w >> k / 32 * 8 & 255, x = of_x >> k / 32 * 8 & 255;
    return std::ldexp(1.0, w - 127) * std::ldexp(1.0, x - 127);
  });
}
inline u16 round_e4m3x2(float low, float high) {
  return host::nearest(low, 126, host::e4m3) | host::nearest(high, 126, host::e4m3) << 8;
}
inline u16 round_e5m2x2(float low, float high) {
  return host::nearest(low, 123, host::e5m2) | host::nearest(high, 123, host::e5m2) << 8;
}
inline u32 pack_s8x4(int v0, int v1, int v2, int v3) {
  auto byte = [](int v) { return static_cast<u32>(std::min(std::max(v, -128), 127)) & 255; };
  return byte(v0) | byte(v1) << 8 | byte(v2) << 16 | byte(v3) << 24;
}
inline u32 pick_bytes(u32 low, u32 high, u32 selector) {
  const u64 bytes = static_cast<u64>(high) << 32 | low;
  u32 d = 0;
  for (int place = 0; place < 4; ++place) {
    const u32 picked = selector >> 4 * place & 15;
    const u32 byte = bytes >> 8 * (picked & 7) & 255;
    d |= (picked & 8 ? byte >> 7 ? 255 : 0 : byte) << 8 * place;  // the top bit picks signs
  }
  return d;
}

}  // namespace humming::ptx
