// The sums of one tile of a block that goes through many: added up, and stored where its rows lie.
// Run by all threads of a block, by lanes of one warp where there is no other.
// Reads -> writes: partial sums in shared memory, bias -> out [rows, n], two neighbouring n a thread.
// Source: own. A lane knows where the row of its number lies, and tells the others.
#pragma once
#include "humming/epilogue/experts.cuh"
#include "humming/epilogue/skinny.cuh"
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
                                                  const WalkTile& tile, int warp, int lane) {
  constexpr int row_pairs = SkinnyPlan<Config>::block_rows / 2, threads = Config::warps * 32;
  SkinnyCall call = all;
  take_rows<Config>(call, experts, tile.of);
  SkinnyOutput output = {nullptr, call.row_scales,    call.bias, tile.of.count,
                         call.n,  tile.row_tile * 16, 0,         call};
  const int pairs = tile.of.count * row_pairs;
#pragma unroll 2
  for (int first = warp * 32; first < pairs; first += threads) {
    const int pair = first + lane, row = min(pair / row_pairs, tile.of.count - 1);
    const int place = __shfl_sync(0xFFFFFFFFu, tile.place, row);
    output.out = static_cast<u16*>(call.out) + place * call.out_row_stride;
    if (pair < pairs) store_pair<Config>(partials.block_sum(pair), pair, output);
  }
}

}  // namespace humming
