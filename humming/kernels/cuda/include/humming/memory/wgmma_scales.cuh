// The scales and zero points of a warp's row tiles, group of k after group, each brought a unit
//   ahead.
// Run by a whole converged warp.
// Reads -> writes: packed scales and zero points in global memory -> registers: pairs of rows g and
//   g + 8.
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
  static constexpr int size = Config::group_size;
  static constexpr int groups = size ? Plan::unit_k / size : 0;  // of a unit
  static constexpr int room = groups ? groups : 1;
  static constexpr bool has_zeros = Config::has_zero_points != 0;

  const char* source[Config::tiles_n];  // of the unit that is brought next
  i64 zeros_offset;                     // from scales to zero points
  u32 ahead[Config::tiles_n][room], zeros_ahead[Config::tiles_n][room];
  static constexpr int of_stages = groups > 1 ? groups / 2 : 1;  // groups of a stage
  u32 now[Config::tiles_n][of_stages], zeros_now[Config::tiles_n][of_stages];
  typename WeightsOf<Config>::Type weights[Config::tiles_n];

  __device__ __forceinline__ WgmmaScales(const WgmmaCall& call, const WgmmaWork& work, int group,
                                         int warp, int lane)
      : zeros_offset(static_cast<const char*>(call.zero_points) -
                     static_cast<const char*>(call.scales)) {
    const int units = (call.k + Plan::unit_k - 1) / Plan::unit_k, all = (call.n + 15) / 16;
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) {
      if constexpr (groups == 0) {
        weights[t].set(0, 0, 0);
      } else {
        const int row_tile =
            min(work.tile_n * Plan::row_tiles + (group * Config::tiles_n + t) * 4 + warp, all - 1);
        source[t] = static_cast<const char*>(call.scales) +
                    (static_cast<i64>(row_tile) * units + work.first) * (groups * 32) +
                    lane / 4 * 4;
#pragma unroll
        for (int g = 0; g < groups; ++g) bring(t, g);
        source[t] += groups * 32;
      }
    }
  }
  // What column `column` of the unit begins is taken, and the same of the next unit brought; of
  // experts that of a whole stage where that begins, as each stage ends with a fence that would wait
  // for what was asked for just before.
  __device__ __forceinline__ void begin(int t, int column, bool more) {
    if constexpr (groups > 0) {
      if constexpr (Config::grouped) take_stage(t, column, more);
      if (column % (size < 16 ? 16 : size) != 0) return;
#pragma unroll
      for (int half = 0; half < (size < 16 ? 16 / size : 1); ++half) {
        const int g = column / size + half;
        if constexpr (Config::grouped) {
          const int of_stage = g % of_stages;
          weights[t].set(now[t][of_stage], has_zeros ? zeros_now[t][of_stage] : 0, half);
        } else {
          weights[t].set(ahead[t][g], has_zeros ? zeros_ahead[t][g] : 0, half);
          if (more) bring(t, g);
        }
      }
    }
  }
  // The unit has ended.
  __device__ __forceinline__ void advance() {
    if constexpr (groups > 0) {
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) source[t] += groups * 32;
    }
  }

 private:
  __device__ __forceinline__ void take_stage(int t, int column, bool more) {
    if (column % Plan::stage_k != 0 || column % size != 0) return;
#pragma unroll
    for (int i = 0; i < of_stages; ++i) {
      const int g = column / size + i;
      now[t][i] = ahead[t][g];
      if constexpr (has_zeros) zeros_now[t][i] = zeros_ahead[t][g];
      if (more) bring(t, g);
    }
  }
  __device__ __forceinline__ void bring(int t, int g) {
    ahead[t][g] = ptx::load_global_u32(source[t] + g * 32);
    if constexpr (has_zeros)
      zeros_ahead[t][g] = ptx::load_global_u32(source[t] + zeros_offset + g * 32);
  }
};

}  // namespace humming
