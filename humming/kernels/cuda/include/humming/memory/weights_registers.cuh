// One warp's stream of weight pieces (1024 bytes: one row tile, one group) held in registers, one
//   unit ahead.
// Run by a whole converged warp.
// Reads -> writes: packed codes in global memory -> registers, 16 bytes a lane and tile.
// Source: own. Plain loads: all that sm_75 has, and the shortest way on any device.
#pragma once
#include "humming/memory/skinny_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
struct Weights {
  using Plan = SkinnyPlan<Config>;

  const char* unit;
  u32 row_tile_bytes, unit_step;
  int units_left, last_tile;
  Words4 held[Config::tiles_n][2];

  __device__ __forceinline__ Weights(const void* codes, const SkinnyShare& share, u32, int,
                                     int lane)
      : unit(static_cast<const char*>(codes) +
             (static_cast<i64>(share.row_tile) * share.groups + share.first_group) *
                 Plan::piece_bytes +
             lane * 16),
        row_tile_bytes(share.row_tile_step * share.groups * Plan::piece_bytes),
        unit_step(share.group_step * Plan::piece_bytes),
        units_left(share.units),
        last_tile(share.row_tiles - 1) {}

  __device__ __forceinline__ void load(int t) {
    const char* source =
        unit + static_cast<u64>(static_cast<u32>(min(t, last_tile))) * row_tile_bytes;
    held[t][0] = ptx::load_global_streamed(source);
    held[t][1] = ptx::load_global_streamed(source + 512);
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
  __device__ __forceinline__ u32 word(int t, int step) const {
    return held[t][step / 4].word[step % 4];
  }
  // Row tile `t` has been used up: its registers take the next group's piece.
  __device__ __forceinline__ void close(int t) {
    if (units_left > 0) load(t);
  }
};

}  // namespace humming
