// Products and fragments of the kernels' own header, but for products with sums of 16 bits.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming::ptx {

inline void mma_m16n8k16_bf16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  host::multiply_16(d, a, b, host::bf16);
}
inline void mma_m16n8k16_f16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  host::multiply_16(d, a, b, host::f16);
}
inline void mma_m16n8k8_f16(float (&)[4], u32, u32, u32) {}
inline void mma_m16n8k16_f16_f16(u32 (&)[2], const u32 (&)[4], const u32 (&)[2]) {}
inline void mma_m16n8k8_f16_f16(u32 (&)[2], u32, u32, u32) {}

inline void ldmatrix_x4(u32& r0, u32& r1, u32& r2, u32& r3, u32 address) {
  auto& shown = host::lanes[host::warp()];
  if (address % 16) std::abort();
  shown[host::lane()][0] = address;
  host::warp_wait();
  u32* const registers[4] = {&r0, &r1, &r2, &r3};
  for (int r = 0; r < 4; ++r)
    *registers[r] = in_shared<u32>(shown[8 * r + host::lane() / 4][0] + host::lane() % 4 * 4);
  host::warp_wait();
}

}  // namespace humming::ptx
