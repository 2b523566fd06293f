// One warp's stream of weight pieces (one row tile, 128 columns) through its own ring in shared
//   memory.
// Run by a whole converged warp; no other warp sees the ring.
// Reads -> writes: packed codes in global memory -> shared memory -> registers, a lane's words of
//   each tile.
// Source: own. cp.async (sm_80), one barrier a stage. Of 4 and 8 bits a lane reads back what it
//   copied, so slots need no release; others are copied in 16 bytes a lane all the same.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/code_words.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
struct Weights {
  using Plan = typename Config::template Plan<Config>;
  static constexpr int tiles = Plan::stage_tiles;
  static constexpr u32 stages = Config::num_stages;
  static constexpr bool lanes_own = Plan::bits % 4 == 0;

  const char* unit;  // the group that the next copy belongs to, in the block's first row tile: this
                     // lane's bytes of it
  u32 row_tile_bytes;  // from one row tile to the next
  u32 unit_step;       // from one group of this warp to its next
  int left, tile, last_tile;
  u32 ring, barriers, lane;
  u32 slot_in = 0, slot_out = 0, parity = 0;
  CodeWords<Plan::bits> held[tiles][2];  // the open stage

  __device__ __forceinline__ Weights(const void* codes, const SkinnyShare& share, u32 shared,
                                     int warp, int lane_)
      : unit(static_cast<const char*>(codes) +
             (static_cast<i64>(share.row_tile) * share.groups + share.first_group) *
                 Plan::piece_bytes +
             lane_ * 16),
        row_tile_bytes(share.row_tile_step * share.groups * Plan::piece_bytes),
        unit_step(share.group_step * Plan::piece_bytes),
        left(share.units * (Config::tiles_n / tiles)),
        tile(0),
        last_tile(share.row_tiles - 1),
        ring(shared + Plan::weight_rings + warp * Plan::weight_ring_bytes),
        barriers(shared + warp * Plan::warp_barriers * 8),
        lane(lane_) {
    if (lane == 0) {
#pragma unroll
      for (u32 s = 0; s < stages; ++s) ptx::mbarrier_init(barriers + 8 * s, 32);
    }
  }

  __device__ __forceinline__ const char* source(int t) const {
    return unit + static_cast<u64>(static_cast<u32>(min(t, last_tile))) * row_tile_bytes;
  }

  __device__ __forceinline__ void issue() {
    if (left == 0) return;
    u32 target = ring + slot_in * Plan::stage_bytes + lane * 16, barrier = barriers + 8 * slot_in;
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const char* piece = source(tile + j);
#pragma unroll
      for (int part = 0; part < Plan::piece_bytes; part += 512) {
        if (part + 512 <= Plan::piece_bytes || lane < 16)
          ptx::cp_async_streamed(target + j * Plan::piece_bytes + part, piece + part);
      }
    }
    ptx::cp_async_arrive(barrier);
    --left;
    tile += tiles;
    if (tile == Config::tiles_n) {
      tile = 0;
      unit += unit_step;
    }
    if (++slot_in == stages) slot_in = 0;
  }

  __device__ __forceinline__ void start() {
#pragma unroll 1
    for (u32 s = 0; s < stages; ++s) issue();
  }

  // Brings the next stage, row tiles t0 .. t0 + stage_tiles - 1, into registers and has its slot
  // filled again.
  __device__ __forceinline__ void open(int t0) {
    wait_full(barriers + 8 * slot_out, parity);
    u32 slot = ring + slot_out * Plan::stage_bytes + TilePlanes<Plan::bits>::lane_offset(lane);
#pragma unroll
    for (int j = 0; j < tiles; ++j) {
      const u32 piece = slot + j * Plan::piece_bytes;
      thread_load_codes<Plan::bits>(held[j][0], piece, lane);
      thread_load_codes<Plan::bits>(held[j][1], piece + Plan::piece_bytes / 2, lane);
    }
    if constexpr (!lanes_own) __syncwarp();  // before another lane overwrites what this one read
    if (++slot_out == stages) {
      slot_out = 0;
      parity ^= 1;
    }
    issue();
  }
  // This lane's words of half `half` (64 columns) of row tile `t`.
  __device__ __forceinline__ const CodeWords<Plan::bits>& codes_of(int t, int half) const {
    return held[t % tiles][half];
  }
  __device__ __forceinline__ void close(int t) {}
};

}  // namespace humming
