// Which tiles of the weight belong to a warp. The only reader of blockIdx of the dequantize family.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// The kernel's arguments: rows [0, n) of `w` have `pitch` elements each, k or a few more.
struct DequantizeCall {
  const void* codes;
  const void* scales;
  const void* zero_points;
  const float* row_scales;  // [16 * ceil(n / 16)]
  void* w;
  int n, k, pitch;
};

struct DequantizeShare {
  int row_tile;  // 16 rows of w
  int k_tiles;   // of 64 columns, in a row tile; two a unit
  int first;     // k tile of this warp
  int count;     // k tiles of this warp, maybe less than one
};

template <class Config>
__device__ __forceinline__ DequantizeShare dequantize_share(int k, int warp) {
  DequantizeShare share;
  share.row_tile = blockIdx.y;
  share.k_tiles = (k + 127) / 128 * 2;
  share.first = (blockIdx.x * Config::warps + warp) * Config::unroll;
  share.count = min(Config::unroll, share.k_tiles - share.first);
  return share;
}

}  // namespace humming
