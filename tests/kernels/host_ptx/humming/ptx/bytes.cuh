// The byte permutation of the kernels' own header as C++.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming::ptx {

inline u32 pick_bytes(u32 low, u32 high, u32 selector) {
  u32 picked = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 named = selector >> (4 * i) & 15, from = named & 4 ? high : low;
    u32 byte = from >> (8 * (named & 3)) & 255;
    if (named & 8) byte = byte & 128 ? 255 : 0;
    picked |= byte << (8 * i);
  }
  return picked;
}

}  // namespace humming::ptx
