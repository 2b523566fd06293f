// The scales of a warp's row tiles, unit of k after unit, each brought a unit ahead.
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

template <class Config>
struct Wgmma8Scales {
  using Plan = Wgmma8Plan<Config>;
  static constexpr bool blocks = Config::block_scales != 0;
  static constexpr int words = Config::group_size ? Plan::unit_k / Config::group_size : 0;
  static constexpr int room = words ? words : 1;
  static constexpr int word_bytes = blocks ? 4 : 32;  // of a row tile and group

  const char* source[Config::tiles_n];
  u32 now[Config::tiles_n][room], ahead[Config::tiles_n][room];

  __device__ __forceinline__ Wgmma8Scales(const WgmmaCall& call, const WgmmaWork& work, int group,
                                          int warp, int lane) {
    if constexpr (words > 0) {
      const int units = (call.k + Plan::unit_k - 1) / Plan::unit_k, all = (call.n + 15) / 16;
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) {
        const int row_tile =
            min(work.tile_n * Plan::row_tiles + (group * Config::tiles_n + t) * 4 + warp, all - 1);
        source[t] = static_cast<const char*>(call.scales) +
                    (static_cast<i64>(row_tile) * units + work.first) * (words * word_bytes) +
                    (blocks ? 0 : lane / 4 * 4);
      }
      bring();
    }
  }
  __device__ __forceinline__ void bring() {
    if constexpr (words > 0) {
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t) {
#pragma unroll
        for (int i = 0; i < words; ++i)
          ahead[t][i] = ptx::load_global_u32(source[t] + i * word_bytes);
        source[t] += words * word_bytes;
      }
    }
  }
  // The scales brought last are those of the unit that begins; those of the next, if any, follow.
  __device__ __forceinline__ void take(bool more) {
    if constexpr (words > 0) {
#pragma unroll
      for (int t = 0; t < Config::tiles_n; ++t)
#pragma unroll
        for (int i = 0; i < words; ++i) now[t][i] = ahead[t][i];
      if (more) bring();
    }
  }
  // What the sums of tile `t`, of the row g + 8 * half, are to be multiplied by.
  __device__ __forceinline__ float factor(int t, int half) const {
    if constexpr (words == 0 || words > 1) {
      return 1.0f;
    } else if constexpr (blocks) {
      return __uint_as_float(now[t][0]);
    } else {
      return Config::Scale::widen(static_cast<u16>(now[t][0] >> (16 * half)));
    }
  }
};

}  // namespace humming
