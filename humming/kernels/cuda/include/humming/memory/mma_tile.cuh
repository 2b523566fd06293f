// The output tile of a block of the mma family in shared memory, and those of its cluster.
// Run by one warp puts its own; any thread reads.
// Reads -> writes: accumulator fragments -> shared memory [row of x][row of w] fp32 -> eight
//   neighbouring rows of w.
// Source: own; warps add in their order, and blocks of a cluster too, so that equal inputs give
//   equal bits.
#pragma once
#include "humming/memory/mma_plan.cuh"
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"

namespace humming {

template <class Config>
struct MmaTile {
  using Plan = MmaPlan<Config>;
  u32 shared;

  static __device__ __forceinline__ u32 aligned(u32 shared) {
    return (shared + Plan::base_alignment - 1) / Plan::base_alignment * Plan::base_alignment;
  }

  // The first warp of an output puts its sums, the others add theirs.
  template <bool add>
  __device__ __forceinline__ void warp_put(const float (&sums)[Plan::warp_tiles][Plan::columns][4],
                                           int warp_m, int warp_n, int lane) const {
    const u32 base = shared + ((warp_m * Plan::columns * 8 + lane % 4 * 2) * Plan::tile_pitch +
                               warp_n * Plan::warp_tiles * 16 + lane / 4) *
                                  4;
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t)
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 place = base + ((c * 8 + i % 2) * Plan::tile_pitch + t * 16 + i / 2 * 8) * 4;
          float value = sums[t][c][i];
          if constexpr (add) value += ptx::load_shared_f32(place);
          ptx::store_shared_f32(place, value);
        }
  }

  // Eight neighbours of one row of x, from column `first` of the tile on.
  __device__ __forceinline__ void eight(float (&v)[8], int row, int first) const {
    const u32 place = shared + (row * Plan::tile_pitch + first) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Words4 words = ptx::load_shared_words4(place + half * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[half * 4 + i] = __uint_as_float(words.word[i]);
    }
  }

  // The sum of the same eight over the blocks of the cluster.
  __device__ __forceinline__ void cluster_eight(float (&v)[8], int row, int first) const {
    const u32 place = shared + (row * Plan::tile_pitch + first) * 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = 0.0f;
#pragma unroll
    for (int rank = 0; rank < Config::split_k; ++rank)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words4 words = ptx::load_cluster_words4(ptx::cluster_map(place + half * 16, rank));
#pragma unroll
        for (int i = 0; i < 4; ++i) v[half * 4 + i] += __uint_as_float(words.word[i]);
      }
  }
};

}  // namespace humming
