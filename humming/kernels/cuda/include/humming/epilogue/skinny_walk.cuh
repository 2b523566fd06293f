// The sums of one tile of a block that goes through many: added up, and stored where its rows lie.
// Run by all threads of a block, by lanes of one warp where there is no other.
// Reads -> writes: partial sums in shared memory, bias -> out [rows, n], as skinny_lines.cuh stores it.
// Source: own. A lane knows where the row of its number lies, and tells the others.
#pragma once
#include "humming/epilogue/experts.cuh"
#include "humming/epilogue/skinny_lines.cuh"
#include "humming/scheduler/skinny_walk.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void tile_sync() {
  if constexpr (Config::warps == 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
}

template <class Config>
__device__ __forceinline__ void block_finish_tile(const Partials<Config>& partials,
                                                  const SkinnyCall& all, const ExpertsCall& experts,
                                                  const WalkTile& tile) {
  SkinnyCall call = all;
  take_rows<Config>(call, experts, tile.of);
  block_store_lines<Config>(partials, call, tile.row_tile * 16, tile.of.count, [&](int row) {
    const int place = __shfl_sync(0xFFFFFFFFu, tile.place, row);
    return static_cast<u16*>(call.out) + place * call.out_row_stride;
  });
}

}  // namespace humming
