// The scales of a warp's row tiles, one group of k after another, each brought a group ahead.
// Run by a whole converged warp.
// Reads -> writes: packed scales in global memory -> registers: the pair of rows g and g + 8.
// Source: own. 32 bytes a row tile and group are one sector; the load is a unit old when it is used.
#pragma once
#include "humming/dequant/scaled_weights.cuh"
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

template <class Config>
struct WgmmaScales {
  using Plan = WgmmaPlan<Config>;

  const char* source[Config::tiles_n];
  u32 ahead[Config::tiles_n];
  ScaledWeights<typename Config::Codes, typename Config::Activation> weights[Config::tiles_n];

  __device__ __forceinline__ WgmmaScales(const WgmmaCall& call, const WgmmaWork& work, int group,
                                         int warp, int lane) {
    const int groups = (call.k + Plan::unit_k - 1) / Plan::unit_k, all = (call.n + 15) / 16;
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) {
      const int row_tile =
          min(work.tile_n * Plan::row_tiles + (group * Config::tiles_n + t) * 4 + warp, all - 1);
      source[t] = static_cast<const char*>(call.scales) +
                  (static_cast<i64>(row_tile) * groups + work.first) * 32 + lane / 4 * 4;
    }
    bring();
  }
  __device__ __forceinline__ void bring() {
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) {
      ahead[t] = ptx::load_global_u32(source[t]);
      source[t] += 32;
    }
  }
  // The scales brought last are those of the unit that begins.
  __device__ __forceinline__ void take() {
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) weights[t].set(ahead[t]);
  }
};

}  // namespace humming
