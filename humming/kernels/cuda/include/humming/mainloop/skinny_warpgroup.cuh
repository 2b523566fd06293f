// A skinny block of warpgroups: wgmma multiplies what the warps dequantize, while they dequantize
//   what comes next.
// Run by all threads of a block.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Half a piece (64 k) a commit: two sets of A registers, two sets of products, one
//   commit in flight.
#pragma once
#include "humming/dequant/skinny_codes.cuh"
#include "humming/epilogue/skinny.cuh"
#include "humming/memory/warpgroup_operands.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
using GroupSums = float[Config::tiles_n][WarpgroupPlan<Config>::columns][4];

// Adds the finished product of a row tile and a unit, without the codes' bias, times the rows'
// scales.
template <class Config, int columns>
__device__ __forceinline__ void group_add_scaled(float (&sum)[columns][4],
                                                 float (&product)[columns][4],
                                                 const float (&bias)[columns][4],
                                                 const GroupOperands<Config>& operands, int u,
                                                 int t) {
  using Codes = SkinnyCodes<Config>;
  const typename Codes::Scales scales(operands, u, t, 0);
#pragma unroll
  for (int c = 0; c < columns; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ptx::settle(product[c][i]);
      scales.add(sum[c][i], Codes::raw ? product[c][i] + bias[c][i] : product[c][i], bias[c][i], i);
    }
}

template <class Config, class Weights>
__device__ __forceinline__ void group_skinny_unit(GroupSums<Config>& sums, Weights& weights,
                                                  GroupOperands<Config>& operands,
                                                  const u32 (&bias_fragments)[4][4], int u) {
  using Plan = WarpgroupPlan<Config>;
  using Activation = typename Config::Activation;
  using Codes = SkinnyCodes<Config>;
  static_assert(Codes::sums_of_unit == 1);
  constexpr int columns = Plan::columns;

  operands.acquire(u);
  const u32 base = operands.descriptor_base(u);
  float bias[columns][4] = {};
  if constexpr (Codes::has_bias) {
    ptx::wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; ++s)
      Activation::group_multiply(bias, bias_fragments[s % 4], operands.descriptor(base, s));
    ptx::wgmma_commit();
  }

  float product[2][columns][4];
  u32 a[2][4][4];
#pragma unroll
  for (int t = 0; t <= Config::tiles_n; ++t) {
    if (t < Config::tiles_n) {
      if (t % Plan::stage_tiles == 0) weights.open(t);
      typename Codes::Factors factors;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const int step = half * 4 + s;
          if (Codes::begins_group(step)) factors.load(operands, u, t, Codes::group_of(step));
          Codes::fragment(a[half][s], weights.codes_of(t, half).word, s, factors);
        }
        if (half == 0) {
#pragma unroll
          for (int c = 0; c < columns; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) product[t % 2][c][i] = 0.0f;
        }
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < 4; ++s)
          Activation::group_multiply(product[t % 2], a[half][s],
                                     operands.descriptor(base, half * 4 + s));
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
          for (int i = 0; i < 4; ++i) ptx::settle(a[half ^ 1][s][i]);
        if (Codes::has_bias && half == 0 && t == 0) {
#pragma unroll
          for (int c = 0; c < columns; ++c)
#pragma unroll
            for (int i = 0; i < 4; ++i) ptx::settle(bias[c][i]);
        }
        if (half == 0 && t == 0) operands.refill(u);
        if (half == 0 && t > 0) {
          group_add_scaled<Config>(sums[t - 1], product[(t - 1) % 2], bias, operands, u, t - 1);
        }
      }
    } else {
      ptx::wgmma_wait<0>();
      group_add_scaled<Config>(sums[t - 1], product[(t - 1) % 2], bias, operands, u, t - 1);
    }
  }
}

template <class Config>
__device__ __forceinline__ void block_skinny(u32 shared, const SkinnyCall& call) {
  shared = WarpgroupPlan<Config>::aligned(shared);
  const int all_warps = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int way = all_warps / 4, warp = all_warps % 4;
  const SkinnyShare share = warpgroup_share<Config>(call.n, call.k, way, warp);
  const SkinnyRows rows = skinny_rows<Config>(call);
  if constexpr (Config::split_k > 1) ptx::cluster_arrive_relaxed();

  Weights<Config> weights(call.codes, share, shared, all_warps, lane);
  GroupOperands<Config> operands(call, rows, share, shared, way, warp, threadIdx.x % 128);
  ptx::fence_barrier_init();
  __syncthreads();
#pragma unroll
  for (int u = 0; u < Config::x_stages - 1; ++u) operands.issue_scales(u);
  weights.start();
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
#pragma unroll
  for (int u = 0; u < Config::x_stages - 1; ++u) operands.issue_x(u);

  GroupSums<Config> sums = {};
  u32 bias_fragments[4][4];
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bias_fragments[s][i] = SkinnyCodes<Config>::bias_register(s, i) + (call.m >> 31);
#pragma unroll 1
  for (int u = 0; u < share.units; ++u) {
    group_skinny_unit<Config>(sums, weights, operands, bias_fragments, u);
    operands.release(u);
  }

  Partials<Config> partials{shared};
  if constexpr (Config::split_k > 1) ptx::cluster_wait();
  __syncthreads();
  partials.warp_store(sums, way, warp * 16, lane);
  __syncthreads();
  block_finish<Config>(partials, share.rank, call, rows);
}

}  // namespace humming
