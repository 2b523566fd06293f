// A whole skinny block, step by step: weights first, then whatever has to wait for the kernel
//   before, then k, then the sums.
// Run by all threads of a block.
// Reads -> writes: x [m, k], packed codes and scales, bias -> out [m, n].
// Source: own. Weights do not depend on the kernel before (dependent launch, sm_90), so their
//   stream starts ahead of the wait.
#pragma once
#include "humming/epilogue/skinny.cuh"
#include "humming/mainloop/skinny.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void block_skinny(u32 shared, const SkinnyCall& call) {
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const SkinnyShare share = skinny_share<Config>(call.n, call.k, warp);
  const SkinnyRows rows = skinny_rows<Config>(call);
  if constexpr (Config::split_k > 1) ptx::cluster_arrive_relaxed();

  Weights<Config> weights(call.codes, share, shared, warp, lane);
  if constexpr (Config::grouped) {  // where x lies is still on its way
#if __CUDA_ARCH__ >= 900
    ptx::fence_barrier_init();
#endif
    __syncwarp();
    weights.start();
  }
  Operands<Config> operands(call, rows, share, shared, warp, lane);
#if __CUDA_ARCH__ >= 900
  ptx::fence_barrier_init();
#endif
  __syncwarp();
  if constexpr (Config::dependent_launch == 0 || Config::grouped) {
#pragma unroll
    for (int u = 0; u < Config::x_stages; ++u) {
      operands.issue_scales(u);
      operands.issue_x(u);
    }
    if constexpr (!Config::grouped) weights.start();
  } else {
#pragma unroll
    for (int u = 0; u < Config::x_stages; ++u) operands.issue_scales(u);
    weights.start();
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
#pragma unroll
    for (int u = 0; u < Config::x_stages; ++u) operands.issue_x(u);
  }

  SkinnySums<Config> sums = {};
  // m >= 0, which the compiler does not know: the fragments stay in registers instead of being made
  // again for every unit.
  u32 bias_fragments[4][4];
#pragma unroll
  for (int s = 0; s < 4; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      bias_fragments[s][i] = SkinnyCodes<Config>::bias_register(s, i) + (call.m >> 31);
#pragma unroll 1
  for (int u = 0; u < share.units; ++u)
    warp_skinny_unit<Config>(sums, weights, operands, bias_fragments, u);

  Partials<Config> partials{shared};
  if constexpr (Config::split_k > 1) ptx::cluster_wait();
  __syncthreads();
  partials.warp_store(sums, warp, 0, lane);
  __syncthreads();
  block_finish<Config>(partials, share.rank, call, rows);
}

}  // namespace humming
