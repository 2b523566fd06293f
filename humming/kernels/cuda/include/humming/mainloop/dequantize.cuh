// A warp's steps of dequantizing: all its tiles from memory, then one after another to 16 bits,
//   through shared memory, to the output.
// Run by all threads of a block; warps do not meet.
// Reads -> writes: packed codes, scales and zero points -> w [n, k], 16 bits, row-major.
// Source: own.
#pragma once
#include "humming/dequant/weights.cuh"
#include "humming/epilogue/dequantize.cuh"
#include "humming/mainloop/dequantize_rules.cuh"
#include "humming/memory/code_words.cuh"
#include "humming/scheduler/dequantize.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void block_dequantize(u32 shared, const DequantizeCall& call) {
  using Codes = typename Config::WideCodes;
  using Weights = DequantizedWeights<Config>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const DequantizeShare share = dequantize_share<Config>(call.k, warp);
  const DequantizedTile tile = {shared + warp * DequantizedTile::bytes};
  const Weights weights(call, share.row_tile, lane);
  const char* codes = static_cast<const char*>(call.codes) +
                      (static_cast<i64>(share.row_tile) * share.k_tiles + share.first) *
                          TilePlanes<Codes::bits>::tile_bytes +
                      TilePlanes<Codes::bits>::lane_offset(lane);

  CodeWords<Codes::bits> held[Config::unroll];
  typename Weights::OfTile factors[Config::unroll];
#pragma unroll
  for (int u = 0; u < Config::unroll; ++u) {
    if (u < share.count) {
      thread_load_codes<Codes::bits>(held[u], codes + u * TilePlanes<Codes::bits>::tile_bytes,
                                     static_cast<u32>(lane));
      weights.load(factors[u], share.first + u);
    }
  }
#pragma unroll
  for (int u = 0; u < Config::unroll; ++u) {
    if (u >= share.count) break;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      u32 a[4];
      weights.fragment(a, held[u], factors[u], share.first + u, step);
      tile.put(a, step, lane);
    }
    __syncwarp();
    warp_store_tile(tile, share.row_tile, share.first + u, lane, call);
    __syncwarp();
  }
}

}  // namespace humming
