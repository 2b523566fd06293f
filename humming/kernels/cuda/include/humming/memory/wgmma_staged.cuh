// A warpgroup's part of the output on its way from fragments of w's rows to rows of x.
// Run by a warpgroup; no other sees it.
// Reads -> writes: pairs of 16 bits -> shared memory [tile][row of x][64 rows of w], chunks of 16
//   bytes swizzled by the row of x -> 16 contiguous bytes of an output row, or the copy engine.
// Source: own. The swizzle is the copy engine's, of 128 bytes.
#pragma once
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/tensor.cuh"

namespace humming {

// Eight neighbouring outputs of a row.
struct StagedChunk {
  u32 shared;

  __device__ __forceinline__ Words4 all() const { return ptx::load_shared_words4(shared); }
  __device__ __forceinline__ u16 one(int i) const { return ptx::load_shared_u16(shared + 2 * i); }
};

template <class Config, class Plan_ = WgmmaPlan<Config>>
struct WgmmaStaged {
  using Plan = Plan_;
  static constexpr int row_chunks = Plan::staged_row_bytes / 16;
  static constexpr int rows = Plan::staged_columns * 8;

  u32 shared;

  __device__ __forceinline__ WgmmaStaged(u32 base, int group)
      : shared(base + Plan::staged + group * Plan::staged_bytes) {}

  __device__ __forceinline__ u32 tile(int t) const { return shared + t * (rows * 128); }
  // Two neighbouring columns of a fragment, from column `column` of the staged ones on: pairs of
  // rows g (even places) and of rows g + 8 (odd ones) of row tile `t`.
  __device__ __forceinline__ void put(const u32 (&pairs)[4], int t, int column, int warp,
                                      int lane) const {
    const int matrix = lane / 8, chunk = warp * 2 + matrix % 2;
    const u32 own = (matrix / 2 * 8 + lane % 8) * 128 + (chunk ^ (lane & 7)) * 16;
    ptx::store_matrix_x4_transposed(tile(t) + column * 1024 + own, pairs[0], pairs[1], pairs[2],
                                    pairs[3]);
  }
  __device__ __forceinline__ StagedChunk chunk(int row, int chunk) const {
    return {tile(chunk / 8) + row * 128 + (chunk % 8 ^ (row & 7)) * 16};
  }
};

}  // namespace humming
