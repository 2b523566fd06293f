// Bias, rounding and the store of the output: the only global stores of the wgmma family beside
//   partial sums.
// Run by a warpgroup, for its own rows of w.
// Reads -> writes: accumulators, bias -> out [m, n], 16 bytes a thread where they are aligned.
// Source: own. Eight or more lanes write contiguous bytes of one output row.
#pragma once
#include "humming/dequant/scaled_weights.cuh"
#include "humming/epilogue/wgmma_partials.cuh"
#include "humming/memory/wgmma_staged.cuh"
#include "humming/ptx/async.cuh"
#include "humming/ptx/sync.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

// The first `count` of a chunk, or all eight.
__device__ __forceinline__ void store_chunk(const StagedChunk& chunk, u16* target, int count,
                                            bool aligned) {
  if (aligned && count >= 8) {
    ptx::store_global_words4(target, chunk.all());
    return;
  }
#pragma unroll 1
  for (int i = 0; i < min(count, 8); ++i) ptx::store_global_u16(target + i, chunk.one(i));
}

// The pieces of `sums` that `own` has a bit for (tile t, columns c: t + c * tiles_n). `stores` counts
// what the copy engine has been given before; the count after is returned.
template <class Config>
__device__ __forceinline__ u32 group_store(const WgmmaSums<Config>& sums, u32 own,
                                           const WgmmaCall& call, const WgmmaWork& work, u32 shared,
                                           int group, int warp, int lane, u32 stores = 0) {
  using Plan = WgmmaPlan<Config>;
  using Staged = WgmmaStaged<Config>;
  constexpr int tiles = Config::tiles_n;
  constexpr float lifted = static_cast<float>(1ull << WeightsOf<Config>::Type::lift);
  const Staged first(shared, group);
  const bool by_engine = Config::num_stores > 1 && call.out_map != nullptr;
  const bool leader = warp == 0 && lane == 0;
  const int first_row = work.tile_n * Plan::block_rows + group * Plan::group_rows;
  const int first_m = Config::grouped ? call.first_row : work.tile_m * Config::block_m;
  u16* out = static_cast<u16*>(call.out);
  const bool aligned = ((reinterpret_cast<u64>(out) | call.out_row_stride * 2) & 15) == 0;

  auto place_of = [&](int row) {
    if constexpr (Config::grouped) return out_row_of(call, row) * call.out_row_stride;
    return row * call.out_row_stride;
  };

  float bias[tiles][2] = {};
  if (call.bias != nullptr) {
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + t * 64 + warp * 16 + h * 8 + lane / 4;
        if (row < call.n) bias[t][h] = ptx::load_global_f32(call.bias + row);
      }
  }
  float factor[tiles][2];
#pragma unroll
  for (int t = 0; t < tiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      factor[t][h] = lifted;
      if constexpr (Config::has_row_scales) {
        const int row = first_row + t * 64 + warp * 16 + h * 8 + lane / 4;
        if (row < call.n) factor[t][h] *= ptx::load_global_f32(call.row_scales + row);
      }
    }
#pragma unroll
  for (int c0 = 0; c0 < Plan::columns; c0 += Plan::staged_columns) {
    const u32 here = own >> (c0 / Plan::staged_columns * tiles);  // a bit a tile
    if ((here & ((1 << tiles) - 1)) == 0) continue;
    Staged staged = first;
    if (by_engine) {
      staged.shared += stores % Config::num_stores * Plan::store_bytes;
      if (leader) ptx::bulk_wait_read<Config::num_stores - 1>();
    }
    ptx::barrier_sync<128>(1 + group);
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int c = 0; c < Plan::staged_columns; c += 2) {
        u32 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float (&four)[4] = sums[t][c0 + c + i / 2];
          const float times = factor[t][i % 2], plus = bias[t][i % 2];
          pairs[i] = Config::Activation::pack(four[i % 2 * 2] * times + plus,
                                              four[i % 2 * 2 + 1] * times + plus);
        }
        staged.put(pairs, t, c, warp, lane);
      }
    if (by_engine) ptx::fence_proxy_async();
    ptx::barrier_sync<128>(1 + group);
    if (by_engine) {
      ++stores;
      if (leader) {
#pragma unroll
        for (int t = 0; t < tiles; ++t)
          if (here >> t & 1)
            ptx::tensor_store(call.out_map, staged.tile(t), first_row + t * 64, first_m + c0 * 8);
        ptx::bulk_commit();
      }
      continue;
    }
#pragma unroll
    for (int i = warp * 32 + lane; i < Staged::rows * Staged::row_chunks; i += 128) {
      const int row = i / Staged::row_chunks, chunk = i % Staged::row_chunks;
      const int row_of_x = first_m + c0 * 8 + row, row_of_w = first_row + chunk * 8;
      if (row_of_x < call.m && row_of_w < call.n && (here >> chunk / 8 & 1))
        store_chunk(staged.chunk(row, chunk), out + place_of(row_of_x) + row_of_w,
                    call.n - row_of_w, aligned);
    }
  }
  return stores;
}

}  // namespace humming
