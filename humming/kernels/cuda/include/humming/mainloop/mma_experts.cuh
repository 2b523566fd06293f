// An mma block of one expert's rows: once it knows its tile it is a dense block.
// Run by all threads of a block.
// Reads -> writes: tiles, x, packed experts -> out [rows, n].
// Source: own. Tiles of experts take the place of tiles along m in the dense raster, so that the
//   tiles of one expert, which follow each other, read its weights at the same time.
#pragma once
#include "humming/epilogue/experts.cuh"
#include "humming/mainloop/mma_block.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void block_mma_experts(u32 shared, MmaCall call,
                                                  const ExpertsCall& experts) {
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
  MmaShare share = mma_share<Config>(call);
  const ExpertTile tile = expert_tile(experts, share.x_row / Config::block_m);
  expect_rows<Config>(experts, share.x_row / Config::block_m);
  if (tile.count == 0) return;
  if (tile.expert < 0) {
    call.rows = rows_of_tile<Config>(experts, tile);
    block_zero_rows(call, tile, share.row_tile * 16, Config::block_n, MmaPlan<Config>::threads);
    return;
  }
  take_expert<Config>(call, experts, tile);
  share.x_row = tile.first;
  block_mma_tile<Config>(shared, call, share);
}

}  // namespace humming
