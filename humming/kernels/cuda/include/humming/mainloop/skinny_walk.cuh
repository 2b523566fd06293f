// A skinny block that goes through tiles of experts' rows: units of k of each, then its sums, while
//   what the next tile wants is on its way.
// Run by all threads of a block.
// Reads -> writes: tiles, x, packed experts, bias -> out [rows, n].
// Source: own. Blocks of one tile each spend most of a short k on finding out what it is and waiting
//   for its first weights; here only the first tile of a block does.
#pragma once
#include "humming/epilogue/skinny_walk.cuh"
#include "humming/mainloop/skinny.cuh"
#include "humming/memory/skinny_walk_ring.cuh"
#include "humming/ptx/grid.cuh"

namespace humming {

template <class Of>
__device__ __forceinline__ void block_skinny_walk(u32 shared, const SkinnyCall& call,
                                                  const ExpertsCall& experts, int experts_in_all) {
  using Config = Walking<Of>;
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  Operands<Config> operands(call, experts, shared, warp, lane);
#if __CUDA_ARCH__ >= 900
  if constexpr (Config::dependent_launch != 0) {
    operands.guess(experts_in_all);
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
#endif
  operands.start();
  Weights<Config> weights(operands);
  const Partials<Config> partials{shared};
  // n >= 0, which the compiler does not know: the fragments stay in registers instead of being made
  // again for every unit.
  u32 bias_fragments[4][4];
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bias_fragments[s][i] = SkinnyCodes<Config>::bias_register(s, i) + (call.n >> 31);
  SkinnyWalk<Config> walk(call, experts, lane);
  walk.begin();
  WalkTile tile;
#pragma unroll 1
  while (walk.next(tile)) {
    if (tile.of.expert < 0) {
      SkinnyCall of_tile = call;
      of_tile.rows = rows_of_tile<Config>(experts, tile.of);
      block_zero_rows(of_tile, tile.of, tile.row_tile * 16, SkinnyPlan<Config>::block_rows,
                      Config::warps * 32);
      continue;
    }
    operands.rows = tile.of.count;
    SkinnySums<Config> sums = {};
#pragma unroll 1
    for (int u = 0; u < operands.units; ++u) {
      warp_skinny_unit<Config>(sums, weights, operands, bias_fragments, u);
      operands.advance();
    }
    tile_sync<Config>();  // sums of the tile before have been read
    partials.warp_store(sums, warp, 0, lane);
    tile_sync<Config>();
    block_finish_tile<Config>(partials, call, experts, tile);
  }
}

}  // namespace humming
