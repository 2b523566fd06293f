// One warp's stream of weight pieces (one row tile, 128 columns) held in registers, one unit ahead.
// Run by a whole converged warp.
// Reads -> writes: packed codes in global memory -> registers, a lane's words of each tile.
// Source: own. Plain loads: all that sm_75 has, and the shortest way on any device.
#pragma once
#include "humming/memory/code_words.cuh"
#include "humming/memory/skinny_plan.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
struct Weights {
  using Plan = SkinnyPlan<Config>;

  const char* unit;
  u32 row_tile_bytes, unit_step;
  int units_left, last_tile;
  u32 lane;
  CodeWords<Plan::bits> held[Config::tiles_n][2];

  __device__ __forceinline__ Weights(const void* codes, const SkinnyShare& share, u32, int,
                                     int lane_)
      : unit(static_cast<const char*>(codes) +
             (static_cast<i64>(share.row_tile) * share.groups + share.first_group) *
                 Plan::piece_bytes +
             TilePlanes<Plan::bits>::lane_offset(lane_)),
        row_tile_bytes(share.row_tile_step * share.groups * Plan::piece_bytes),
        unit_step(share.group_step * Plan::piece_bytes),
        units_left(share.units),
        last_tile(share.row_tiles - 1),
        lane(lane_) {}

  __device__ __forceinline__ void load(int t) {
    const char* source =
        unit + static_cast<u64>(static_cast<u32>(min(t, last_tile))) * row_tile_bytes;
    thread_load_codes<Plan::bits>(held[t][0], source, lane);
    thread_load_codes<Plan::bits>(held[t][1], source + Plan::piece_bytes / 2, lane);
  }

  __device__ __forceinline__ void start() {
    if (units_left == 0) return;
#pragma unroll
    for (int t = 0; t < Config::tiles_n; ++t) load(t);
  }

  __device__ __forceinline__ void open(int) {
    --units_left;
    unit += unit_step;
  }
  // This lane's words of half `half` (64 columns) of row tile `t`.
  __device__ __forceinline__ const CodeWords<Plan::bits>& codes_of(int t, int half) const {
    return held[t][half];
  }
  // Row tile `t` has been used up: its registers take the next unit's piece.
  __device__ __forceinline__ void close(int t) {
    if (units_left > 0) load(t);
  }
};

}  // namespace humming
