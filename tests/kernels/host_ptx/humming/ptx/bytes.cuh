// Nothing multiplies bytes on the host.
#pragma once
#include "humming/ptx/types.cuh"

inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }

namespace humming::ptx {

inline void mma_m16n8k32_s8(int (&)[4], const u32 (&)[4], const u32 (&)[2], const int (&)[4]) {}
inline void mma_m8n8k16_s8(int&, int&, u32, u32, int, int) {}
inline void mma_m16n8k64_s4(int (&)[4], const u32 (&)[4], const u32 (&)[2], const int (&)[4]) {}
inline void mma_m8n8k32_s4(int&, int&, u32, u32, int, int) {}
inline void mma_m16n8k32_e4m3(float (&)[4], const u32 (&)[4], const u32 (&)[2],
                              const float (&)[4]) {}
inline void mma_m16n8k32_e5m2(float (&)[4], const u32 (&)[4], const u32 (&)[2],
                              const float (&)[4]) {}

}  // namespace humming::ptx
