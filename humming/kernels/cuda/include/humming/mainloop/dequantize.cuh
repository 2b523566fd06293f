// A warp's steps of dequantizing: all its tiles from memory, then one after another to 16 bits,
//   through shared memory, to the output.
// Run by all threads of a block; warps do not meet.
// Reads -> writes: packed codes and scales -> w [n, k], 16 bits, row-major.
// Source: own.
#pragma once
#include "humming/dequant/int4.cuh"
#include "humming/epilogue/dequantize.cuh"
#include "humming/mainloop/dequantize_rules.cuh"
#include "humming/scheduler/dequantize.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void block_dequantize(u32 shared, const void* codes, const void* scales,
                                                 void* w, int n, int k) {
  using Codes = Int4<typename Config::Activation>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const DequantizeShare share = dequantize_share<Config>(k, warp);
  const DequantizedTile tile = {shared + warp * DequantizedTile::bytes};

  Words4 held[Config::unroll];
  u32 scale_pair[Config::unroll];
#pragma unroll
  for (int u = 0; u < Config::unroll; ++u) {
    const i64 place = static_cast<i64>(share.row_tile) * share.k_tiles + share.first + u;
    if (u < share.count) {
      held[u] =
          ptx::load_global_streamed(static_cast<const char*>(codes) + place * 512 + lane * 16);
      scale_pair[u] =
          ptx::load_global_u32(static_cast<const char*>(scales) + place / 2 * 32 + lane / 4 * 4);
    }
  }
#pragma unroll
  for (int u = 0; u < Config::unroll; ++u) {
    if (u >= share.count) break;
    const u32 low = ptx::repeat_low(scale_pair[u]), high = ptx::repeat_high(scale_pair[u]);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      u32 a[4];
      Codes::scaled(a, held[u].word[step], low, high);
      tile.put(a, step, lane);
    }
    __syncwarp();
    warp_store_tile(tile, share.row_tile, share.first + u, lane, w, n, k);
    __syncwarp();
  }
}

}  // namespace humming
