// A wgmma8 block of experts' rows: one warpgroup gathers codes of x and has weights brought, the others
//   multiply as in a dense block.
// Run by all threads of a block.
// Reads -> writes: tiles, codes and scales of x, packed experts -> out [rows, n].
// Source: own, as wgmma_experts.cuh.
#pragma once
#include "humming/mainloop/wgmma8.cuh"
#include "humming/mainloop/wgmma_experts.cuh"

namespace humming {

// Rows of x in codes, whose rows and groups of scales are so far apart.
struct ExpertsInput {
  const void* codes;
  i64 row_bytes, scales_pitch;
};

template <class Config>
__device__ __forceinline__ void group_fill8(const Wgmma8Maps& maps, const ExpertsInput& x,
                                            Wgmma8Call call, const ExpertsCall& experts, u32 shared,
                                            int thread) {
  using Plan = Wgmma8Plan<Config>;
  WgmmaExpertsWalk<Config, Plan> walk(call, experts);
  Ring8Fill<Config> fill{maps, shared, {}};
  WgmmaWork work;
  ExpertTile tile;
  const int row_tiles = (call.n + 15) / 16;
  const u32 target = GatheredRows<Config>::target(thread);
  call.shared = experts.shared;
#pragma unroll 1
  while (walk.next(work, tile)) {
    if (walk.has_next()) expect_rows<Config>(experts, walk.next_m);
    if (tile.expert < 0) continue;
    call.rows = rows_of_tile<Config>(experts, tile);
    call.first_row = tile.first;
    call.m = tile.first + tile.count;
    const GatheredRows<Config> rows(call, x.row_bytes / 16, thread);
    const float* scales = call.x_scales;
    if constexpr (Config::x_group_size != 0)
      scales += x_row_of(call, min(call.first_row + thread, call.m - 1));
    const char* column = static_cast<const char*>(x.codes) + thread % 8 * 16;
#pragma unroll 1
    for (int u = 0; u < work.units; ++u) {
      const u32 full = shared + Plan::full_barriers + 8 * fill.place.slot;
      if (thread == 0) {
        fill.weights(work, u, tile.expert * row_tiles);
      } else {
        wait_full(shared + Plan::empty_barriers + 8 * fill.place.slot, fill.place.parity ^ 1);
      }
      rows.copy(shared + Plan::x_ring + fill.place.slot * Plan::x_stage_bytes + target, column, 16);
      if constexpr (Config::x_group_size != 0) {
        ptx::cp_async_4_if(thread < Config::block_m, fill.scales_target() + thread * 4, scales);
        scales += x.scales_pitch;
      }
      ptx::cp_async_arrive(full);
      column += Plan::unit_k;
      fill.place.template advance<Config::num_stages>();
    }
  }
}

template <class Config>
__device__ __forceinline__ void group_drain8_experts(const Wgmma8Call& all,
                                                     const ExpertsCall& experts, u32 shared,
                                                     int group, int warp, int lane) {
  using Plan = Wgmma8Plan<Config>;
  WgmmaExpertsWalk<Config, Plan> walk(all, experts);
  const int rows = group / Plan::turns;
  Ring8Drain<Config> drain{shared, rows, warp, lane, {}};
  WgmmaWork work;
  ExpertTile tile;
#pragma unroll 1
  while (walk.next(work, tile)) {
    Wgmma8Call call = all;
    if (tile.expert < 0) {
      call.rows = rows_of_tile<Config>(experts, tile);
      if (group == 0)
        block_zero_rows(call, tile, work.tile_n * Plan::block_rows, Plan::block_rows, 128);
      continue;
    }
    take_rows<Config>(call, experts, tile);
    const int turn = drain.turn_of(group);
    Wgmma8Scales<Config> scales(call, work, rows, warp, lane, turn);
    WgmmaSums<Config> sums;
    const int thread = warp * 32 + lane;
    constexpr int narrow = narrow_rows(Config::block_m);
    constexpr int middle = middle_rows(Config::block_m, Config::tiles_n);
    bool stores;
    if (narrow < middle && tile.count <= narrow) {
      stores = group_take_turns<Config, narrow / 8>(sums, drain, scales, work.units, shared, rows,
                                                    turn, thread);
    } else if (middle < Config::block_m && tile.count <= middle) {
      stores = group_take_turns<Config, middle / 8>(sums, drain, scales, work.units, shared, rows,
                                                    turn, thread);
    } else {
      stores =
          group_take_turns<Config>(sums, drain, scales, work.units, shared, rows, turn, thread);
    }
    if (stores) group_store8<Config>(sums, 0xFFFFFFFFu, call, work, shared, rows, warp, lane);
  }
}

template <class Config>
__device__ __forceinline__ void block_wgmma8_experts(const Wgmma8Maps& maps, const ExpertsInput& x,
                                                     u32 shared, const Wgmma8Call& call,
                                                     const ExpertsCall& experts) {
  using Plan = Wgmma8Plan<Config>;
  shared = Plan::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring8_init<Config>(shared);
    ptx::fence_barrier_init();
  }
  if constexpr (Plan::scaled_codes) block_fill_table<Config>(shared + Plan::table);
  __syncthreads();
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
  if (warp >= Plan::consumer_warps) {
    ptx::registers_down<fill_registers<Config, Plan>()>();
    group_fill8<Config>(maps, x, call, experts, shared, threadIdx.x - Plan::consumer_warps * 32);
  } else {
    ptx::registers_up<Plan::drain_registers>();
    group_drain8_experts<Config>(call, experts, shared, warp / 4, warp % 4, lane);
  }
}

}  // namespace humming
