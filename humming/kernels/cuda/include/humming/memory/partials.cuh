// Partial sums in shared memory: of the ways in which a block splits k, and of the blocks of a
//   cluster.
// Run by one warp writes its own; any thread reads.
// Reads -> writes: accumulator fragments -> shared memory [warp][row of x][row of w] fp32 -> pairs
//   of neighbouring rows of w, or eight of them.
// Source: own; sums run in the order of warps and blocks, so that equal inputs give equal bits.
#pragma once
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"

namespace humming {

template <class Config>
struct Partials {
  using Plan = typename Config::template Plan<Config>;
  u32 shared;

  __device__ __forceinline__ void warp_store(const float (&sum)[Config::tiles_n][Plan::columns][4],
                                             int way, int first_row, int lane) const {
    constexpr int tile_rows = Plan::block_rows / Config::tiles_n;
    u32 base = shared + Plan::partials + way * Plan::way_partial_bytes;
    int row = first_row + lane / 4;
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        int column = 8 * c + 2 * (lane % 4) + j;
        if (column < Config::block_m) {
          u32 line = base + (column * Plan::partial_pitch + row) * 4;
#pragma unroll
          for (int t = 0; t < Config::tiles_n; ++t) {
            ptx::store_shared_f32(line + t * tile_rows * 4, sum[t][c][j]);
            ptx::store_shared_f32(line + t * tile_rows * 4 + 32, sum[t][c][j + 2]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ float2 block_sum(int pair) const {
    constexpr int row_pairs = Plan::block_rows / 2;
    return block_sum(pair / row_pairs, pair % row_pairs);
  }
  // Of row `row` of x, and a pair of rows of w.
  __device__ __forceinline__ float2 block_sum(int row, int pair) const {
    u32 source = shared + Plan::partials + (row * Plan::partial_pitch + pair * 2) * 4;
    float2 total = {0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < Plan::ways; ++w) {
      float2 v = ptx::load_shared_f32x2(source + w * Plan::way_partial_bytes);
      total.x += v.x;
      total.y += v.y;
    }
    return total;
  }

  // Of row `row` of x, and eight rows of w from `first` on.
  __device__ __forceinline__ void block_sum(float (&total)[8], int row, int first) const {
    static_assert(Plan::partials % 16 == 0 && Plan::partial_pitch % 4 == 0 &&
                      Plan::way_partial_bytes % 16 == 0,
                  "16 bytes are read at once");
    const u32 source = shared + Plan::partials + (row * Plan::partial_pitch + first) * 4;
#pragma unroll
    for (int w = 0; w < Plan::ways; ++w)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Words4 v = ptx::load_shared_words4(source + w * Plan::way_partial_bytes + half * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float part = __uint_as_float(v.word[i]);
          total[4 * half + i] = w == 0 ? part : total[4 * half + i] + part;
        }
      }
  }

  __device__ __forceinline__ void send(int pair, float2 v, u32 rank) const {
    u32 owner = pair / Plan::owned_pairs,
        place = rank * Plan::owned_pairs + pair % Plan::owned_pairs;
    ptx::store_cluster_f32x2(ptx::cluster_map(shared + Plan::gather + place * 8, owner), v);
  }

  __device__ __forceinline__ float2 cluster_sum(int own_pair) const {
    float2 total = {0.0f, 0.0f};
#pragma unroll
    for (int r = 0; r < Config::split_k; ++r) {
      float2 v =
          ptx::load_shared_f32x2(shared + Plan::gather + (r * Plan::owned_pairs + own_pair) * 8);
      total.x += v.x;
      total.y += v.y;
    }
    return total;
  }
};

}  // namespace humming
