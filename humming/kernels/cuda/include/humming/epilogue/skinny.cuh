// Sums of warps and blocks, bias, rounding, and the store of the output. Lines of experts' rows, which
//   lie anywhere, are skinny_lines.cuh.
// Run by all threads of a block, and of its cluster where k is split.
// Reads -> writes: partial sums in shared memory, bias -> out [m, n], two neighbouring n a thread.
// Source: own. Partials are pushed to the block that owns the output, so one cluster barrier is
//   enough.
#pragma once
#include "humming/epilogue/skinny_lines.cuh"
#include "humming/memory/partials.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

// Where a block's sums go: its first row of w, and the rows of x that it has.
struct SkinnyOutput {
  u16* out;  // of the block's first row of x
  const float* row_scales;
  const float* bias;  // or null
  int rows_of_x, n, first_row;
  i64 row_stride;
  const SkinnyCall& call;
};

template <class Config>
__device__ __forceinline__ void store_pair(float2 v, int pair, const SkinnyOutput& output) {
  constexpr int row_pairs = Config::template Plan<Config>::block_rows / 2;
  int column = pair / row_pairs, row = output.first_row + pair % row_pairs * 2;
  if (column >= output.rows_of_x || row >= output.n) return;
  const bool both = row + 1 < output.n;
  if constexpr (Config::has_row_scales) {  // padded to whole row tiles
    v.x *= ptx::load_global_f32(output.row_scales + row);
    v.y *= ptx::load_global_f32(output.row_scales + row + 1);
  }
  if (output.bias != nullptr) {
    v.x += ptx::load_global_f32(output.bias + row);
    if (both) v.y += ptx::load_global_f32(output.bias + row + 1);
  }
  u32 packed = Config::Activation::pack(v.x, v.y);
  u16* target = output.out + row;
  if constexpr (Config::grouped) {
    target += out_row_of(output.call, output.call.first_row + column) * output.row_stride;
  } else {
    target += column * output.row_stride;
  }
  if (both && (reinterpret_cast<u64>(target) & 3) == 0) {
    ptx::store_global_u32(target, packed);
  } else {
    ptx::store_global_u16(target, static_cast<u16>(packed));
    if (both) ptx::store_global_u16(target + 1, static_cast<u16>(packed >> 16));
  }
}

template <class Config>
__device__ __forceinline__ void block_finish(const Partials<Config>& partials, int rank,
                                             const SkinnyCall& call, const SkinnyRows& rows) {
  using Plan = typename Config::template Plan<Config>;
  constexpr int threads = Config::warps * 32;
  const i64 first = Config::grouped ? 0 : rows.first * call.out_row_stride;
  const SkinnyOutput output = {
      static_cast<u16*>(call.out) + first, call.row_scales,     call.bias, rows.count, call.n,
      block_first_row<Config>(),           call.out_row_stride, call};
  if constexpr (Config::split_k == 1 && Config::grouped) {
    block_store_lines<Config>(partials, call, block_first_row<Config>(), rows.count, [&](int row) {
      return static_cast<u16*>(call.out) +
             out_row_of(call, call.first_row + row) * call.out_row_stride;
    });
  } else if constexpr (Config::split_k == 1) {
#pragma unroll 2
    for (int pair = threadIdx.x; pair < Plan::pairs; pair += threads)
      store_pair<Config>(partials.block_sum(pair), pair, output);
  } else {
#pragma unroll 2
    for (int pair = threadIdx.x; pair < Plan::pairs; pair += threads)
      partials.send(pair, partials.block_sum(pair), rank);
    ptx::cluster_arrive();
    ptx::cluster_wait();
    int owned = rank * Plan::owned_pairs;
    for (int own = threadIdx.x; own < Plan::owned_pairs && owned + own < Plan::pairs;
         own += threads)
      store_pair<Config>(partials.cluster_sum(own), owned + own, output);
  }
}

}  // namespace humming
