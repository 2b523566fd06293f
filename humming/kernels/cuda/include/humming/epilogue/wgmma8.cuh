// Scales of rows of w and of x, bias, rounding and the store of the output: the only global stores of
//   the wgmma8 family beside partial sums.
// Run by a warpgroup, for its own rows of w.
// Reads -> writes: accumulators, scales, bias -> out [m, n], 16 bytes a thread where they are aligned.
// Source: own. Staged and stored as in epilogue/wgmma.cuh.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/dequant/byte_product.cuh"
#include "humming/epilogue/wgmma.cuh"
#include "humming/memory/wgmma8_plan.cuh"

namespace humming {

struct Wgmma8Call : WgmmaCall {
  const float* x_scales;  // [groups, m rounded up to 4]; read here where a row has one
};

// What tensor cores add up, and what is added up of it in fp32.
template <class Config>
using Wgmma8Sums =
    typename ByteProduct<typename Config::Type>::Sum[Config::tiles_n][Config::block_m / 8][4];
template <class Config>
using Wgmma8Promoted = float[Config::tiles_n][Config::block_m / 8][4];

// What a sum is to be multiplied by, and what is added then: row g + 8 * h of tile t.
template <class Config>
struct RowFactors {
  float times[Config::tiles_n][2], plus[Config::tiles_n][2];

  __device__ __forceinline__ RowFactors(const WgmmaCall& call, int first_row, int warp, int lane) {
    constexpr int lift = Config::Codes::lift;
    constexpr float lifted = lift < 0 ? static_cast<float>(1 << (lift < 0 ? -lift : 0))
                                      : 1.0f / (1 << (lift < 0 ? 0 : lift));
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + t * 64 + warp * 16 + h * 8 + lane / 4;
        const bool real = row < call.n;
        times[t][h] = lifted;
        if (Config::has_row_scales && real)
          times[t][h] *= ptx::load_global_f32(call.row_scales + row);
        plus[t][h] = call.bias != nullptr && real ? ptx::load_global_f32(call.bias + row) : 0.0f;
      }
  }
};

// The scales of the two rows of x that a lane has of column `c`; 1 where groups had theirs.
template <class Config>
__device__ __forceinline__ float2 token_factors(const Wgmma8Call& call, int first_m, int c,
                                                int lane) {
  float2 v = {1.0f, 1.0f};
  if constexpr (Config::x_group_size == 0) {
    const int row = first_m + c * 8 + lane % 4 * 2;
    auto of_row = [&](int own) {
      if constexpr (Config::grouped)
        return ptx::load_global_f32(call.x_scales + x_row_of(call, own));
      return ptx::load_global_f32(call.x_scales + own);
    };
    if (row < call.m) v.x = of_row(row);
    if (row + 1 < call.m) v.y = of_row(row + 1);
  }
  return v;
}

// The pieces of `sums` that `own` has a bit for (tile t, columns c: t + c * tiles_n).
template <class Config>
__device__ __forceinline__ void group_store8(const WgmmaSums<Config>& sums, u32 own,
                                             const Wgmma8Call& call, const WgmmaWork& work,
                                             u32 shared, int group, int warp, int lane) {
  using Plan = Wgmma8Plan<Config>;
  using Staged = WgmmaStaged<Config, Plan>;
  constexpr int tiles = Config::tiles_n;
  const Staged staged(shared, group);
  const int first_row = work.tile_n * Plan::block_rows + group * Plan::group_rows;
  const int first_m = Config::grouped ? call.first_row : work.tile_m * Config::block_m;
  u16* out = static_cast<u16*>(call.out);
  auto place_of = [&](int row) {
    if constexpr (Config::grouped) return out_row_of(call, row) * call.out_row_stride;
    return row * call.out_row_stride;
  };
  const bool aligned = ((reinterpret_cast<u64>(out) | call.out_row_stride * 2) & 15) == 0;
  const RowFactors<Config> rows(call, first_row, warp, lane);
#pragma unroll
  for (int c0 = 0; c0 < Plan::columns; c0 += Plan::staged_columns) {
    const u32 here = own >> (c0 / Plan::staged_columns * tiles);  // a bit a tile
    if ((here & ((1 << tiles) - 1)) == 0) continue;
    float2 tokens[Plan::staged_columns];
#pragma unroll
    for (int c = 0; c < Plan::staged_columns; ++c)
      tokens[c] = token_factors<Config>(call, first_m, c0 + c, lane);
    ptx::barrier_sync<128>(1 + group);
#pragma unroll
    for (int t = 0; t < tiles; ++t)
#pragma unroll
      for (int c = 0; c < Plan::staged_columns; c += 2) {
        u32 pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float (&four)[4] = sums[t][c0 + c + i / 2];
          const float2 token = tokens[c + i / 2];
          const float times = rows.times[t][i % 2], plus = rows.plus[t][i % 2];
          pairs[i] = Config::Activation::pack(fmaf(four[i % 2 * 2] * token.x, times, plus),
                                              fmaf(four[i % 2 * 2 + 1] * token.y, times, plus));
        }
        staged.put(pairs, t, c, warp, lane);
      }
    ptx::barrier_sync<128>(1 + group);
#pragma unroll
    for (int i = warp * 32 + lane; i < Staged::rows * Staged::row_chunks; i += 128) {
      const int row = i / Staged::row_chunks, chunk = i % Staged::row_chunks;
      const int row_of_x = first_m + c0 * 8 + row, row_of_w = first_row + chunk * 8;
      if (row_of_x < call.m && row_of_w < call.n && (here >> chunk / 8 & 1))
        store_chunk(staged.chunk(row, chunk), out + place_of(row_of_x) + row_of_w,
                    call.n - row_of_w, aligned);
    }
  }
}

}  // namespace humming
