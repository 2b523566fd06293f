// The scales of a warp's row tiles by which promoted sums are multiplied, unit of k after unit, each
//   brought a few units ahead.
// Run by a whole converged warp.
// Reads -> writes: packed scales in global memory -> registers: of blocks, one fp32 a row tile and
//   unit; of groups, pairs of rows g and g + 8.
// Source: own.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/memory/wgmma8_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

// Units that a warpgroup has of `units`, where the warpgroups of its rows take turns.
template <class Config>
__device__ __forceinline__ int turns_of(int units, int turn) {
  constexpr int turns = Wgmma8Plan<Config>::turns;
  return turns == 1 ? units : (units - turn + turns - 1) / turns;
}

template <class Config>
struct Wgmma8Scales {
  using Plan = Wgmma8Plan<Config>;
  static constexpr bool any = Config::group_size != 0 && !Plan::scaled_codes;
  static constexpr bool blocks = Config::block_scales != 0;
  static constexpr int distance = 3;                  // units between load and use
  static constexpr int word_bytes = blocks ? 4 : 32;  // of a row tile and unit

  const char* source[Config::tiles_n];
  u32 now[Config::tiles_n], ahead[Config::tiles_n][distance];
  int left;  // units of the work that are not brought yet, of this warpgroup's turns

  __device__ __forceinline__ Wgmma8Scales(const WgmmaCall& call, const WgmmaWork& work, int group,
                                          int warp, int lane, int turn = 0)
      : left(turns_of<Config>(work.units, turn)) {
    if constexpr (any) {
      const int units = (call.k + Plan::unit_k - 1) / Plan::unit_k, all = (call.n + 15) / 16;
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) {
        const int row_tile =
            min(work.tile_n * Plan::row_tiles + (group * Config::tiles_n + t) * 4 + warp, all - 1);
        source[t] = static_cast<const char*>(call.scales) +
                    (static_cast<i64>(row_tile) * units + work.first + turn) * word_bytes +
                    (blocks ? 0 : lane / 4 * 4);
      }
#pragma unroll
      for (int i = 0; i < distance; ++i) bring(i);
    }
  }
  // The scales of the unit that begins, and later ones are asked for.
  __device__ __forceinline__ void take() {
    if constexpr (any) {
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) {
        now[t] = ahead[t][0];
#pragma unroll
        for (int i = 0; i + 1 < distance; ++i) ahead[t][i] = ahead[t][i + 1];
      }
      bring(distance - 1);
    }
  }
  // What the sums of tile `t`, of the row g + 8 * half, are to be multiplied by.
  __device__ __forceinline__ float factor(int t, int half) const {
    if constexpr (!any) {
      return 1.0f;
    } else if constexpr (blocks) {
      return __uint_as_float(now[t]);
    } else {
      return Config::Scale::widen(static_cast<u16>(now[t] >> (16 * half)));
    }
  }

 private:
  __device__ __forceinline__ void bring(int place) {
    if (left == 0) return;
    --left;
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) {
      ahead[t][place] = ptx::load_global_u32(source[t]);
      source[t] += Plan::turns * word_bytes;
    }
  }
};

}  // namespace humming
