// A skinny block of one expert's rows: once it knows its tile it is a dense block.
// Run by all threads of a block.
// Reads -> writes: tiles, x, packed experts -> out [rows, n].
// Source: own. The list of tiles may be written by the kernel before, so a dependent launch waits
//   for it first.
#pragma once
#include "humming/epilogue/experts.cuh"
#include "humming/scheduler/experts.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void block_skinny_experts(u32 shared, SkinnyCall call,
                                                     const ExpertsCall& experts) {
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
  const ExpertTile tile = expert_tile(experts, skinny_tile());
  expect_rows<Config>(experts, skinny_tile());
  if (tile.count == 0) return;
  if (tile.expert < 0) {
    call.rows = rows_of_tile<Config>(experts, tile);
    block_zero_rows(call, tile, block_first_row<Config>(),
                    Config::template Plan<Config>::block_rows, Config::warps * 32);
    return;
  }
  take_expert<Config>(call, experts, tile);
  if (call.permutation != nullptr) call.permutation += static_cast<i64>(tile.expert) * call.k;
  block_skinny<Config>(shared, call);
}

}  // namespace humming
