// Nothing multiplies matrices on the host.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline void mma_m16n8k16_bf16(float (&)[4], const u32 (&)[4], const u32 (&)[2]) {}
inline void mma_m16n8k16_f16(float (&)[4], const u32 (&)[4], const u32 (&)[2]) {}
inline void mma_m16n8k16_f16_f16(u32 (&)[2], const u32 (&)[4], const u32 (&)[2]) {}
inline void mma_m16n8k8_f16_f16(u32 (&)[2], u32, u32, u32) {}
inline void mma_m16n8k8_f16(float (&)[4], u32, u32, u32) {}

}  // namespace humming::ptx
