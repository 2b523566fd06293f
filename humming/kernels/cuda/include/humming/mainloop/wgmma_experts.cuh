// A wgmma block of experts' rows: one warpgroup gathers x and has codes brought, the others multiply as
//   in a dense block.
// Run by all threads of a block.
// Reads -> writes: tiles, x, packed experts -> out [rows, n].
// Source: own. Rows of x lie anywhere, so threads copy them, 16 bytes each, into the swizzled panels
//   that the copy engine would write; codes of all experts are rows of one tensor map.
#pragma once
#include "humming/epilogue/experts.cuh"
#include "humming/mainloop/wgmma.cuh"
#include "humming/memory/gathered_rows.cuh"
#include "humming/scheduler/wgmma_experts.cuh"

namespace humming {

// Scales of a tile's rows and its next units of k are brought to L2, as those who multiply ask for
// them a unit before they are used.
template <class Config>
__device__ __forceinline__ void expect_scales(const WgmmaCall& call, const ExpertsCall& experts,
                                              const ExpertTile& tile, const WgmmaWork& work,
                                              int unit, int thread) {
  using Plan = WgmmaPlan<Config>;
  if constexpr (Config::group_size > 0) {
    constexpr int run = 8, unit_bytes = Plan::unit_k / Config::group_size * 32;
    const int row_tile = work.tile_n * Plan::row_tiles + thread;
    if (unit % run != 0 || thread >= Plan::row_tiles || row_tile >= (call.n + 15) / 16) return;
    const i64 offset = tile.expert * experts.scales_bytes +
                       (static_cast<i64>(row_tile) * work.units + unit) * unit_bytes;
    const u32 bytes = min(run, work.units - unit) * unit_bytes;
    ptx::bulk_prefetch(static_cast<const char*>(call.scales) + offset, bytes);
    if constexpr (Config::has_zero_points != 0)
      ptx::bulk_prefetch(static_cast<const char*>(call.zero_points) + offset, bytes);
  }
}

template <class Config>
__device__ __forceinline__ void group_fill(const TensorMap* codes_map, const void* x,
                                           i64 x_row_stride, WgmmaCall call,
                                           const ExpertsCall& experts, u32 shared, int thread) {
  using Plan = WgmmaPlan<Config>;
  WgmmaExpertsWalk<Config> walk(call, experts);
  RingPlace place;
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
    const GatheredRows<Config> rows(call, x_row_stride / 8, thread);
    const char* column = static_cast<const char*>(x) + thread % 8 * 16;
    int columns_left = call.k - thread % 8 * 8;
#pragma unroll 1
    for (int s = 0; s < work.units * 2; ++s) {
      const u32 full = shared + Plan::full_barriers + 8 * place.slot;
      if (s % 2 == 0) expect_scales<Config>(call, experts, tile, work, s / 2, thread);
      wait_full(shared + Plan::empty_barriers + 8 * place.slot, place.parity ^ 1);
      if (thread == 0) {
        ptx::mbarrier_expect(full, Plan::weight_stage_bytes);
        ptx::tensor_copy(shared + Plan::weight_ring + place.slot * Plan::weight_stage_bytes,
                         codes_map, s * (Plan::piece_bytes / 4),
                         tile.expert * row_tiles + work.tile_n * Plan::row_tiles, full);
      }
      const u32 slot = shared + Plan::x_ring + place.slot * Plan::x_stage_bytes + target;
      rows.copy(slot, column, columns_left > 0 ? 16 : 0);
      ptx::cp_async_arrive(full);
      column += Plan::stage_k * 2;
      columns_left -= Plan::stage_k;
      place.template advance<Config::num_stages>();
    }
  }
}

// Products of fewer rows than a tile has: of an expert's last tile, and where registers allow another
// of tiles that hold a few rows more than most experts have. So few as the first cost no less than
// their weights' decoding.
__host__ __device__ constexpr int narrow_rows(int block_m) {
  return block_m >= 80 ? 48 : block_m == 64 ? 32 : block_m;
}
__host__ __device__ constexpr int middle_rows(int block_m, int tiles_n) {
  if (block_m < 80 || block_m * tiles_n > 160) return block_m;
  return block_m >= 112 ? block_m - 32 : 64;
}

template <class Config>
__device__ __forceinline__ void group_drain_experts(const WgmmaCall& all,
                                                    const ExpertsCall& experts, u32 shared,
                                                    int group, int warp, int lane) {
  using Plan = WgmmaPlan<Config>;
  WgmmaExpertsWalk<Config> walk(all, experts);
  RingDrain<Config> drain(shared, group, warp, lane);
  WgmmaWork work;
  ExpertTile tile;
#pragma unroll 1
  while (walk.next(work, tile)) {
    if (tile.expert < 0) {
      WgmmaCall call = all;
      call.rows = rows_of_tile<Config>(experts, tile);
      if (group == 0)
        block_zero_rows(call, tile, work.tile_n * Plan::block_rows, Plan::block_rows, 128);
      continue;
    }
    WgmmaSums<Config> sums;
    {
      WgmmaCall call = all;
      take_rows<Config>(call, experts, tile);
      WgmmaScales<Config> scales(call, work, group, warp, lane);
      constexpr int narrow = narrow_rows(Config::block_m);
      constexpr int middle = middle_rows(Config::block_m, Config::tiles_n);
      if (narrow < middle && tile.count <= narrow) {
        group_multiply<Config, narrow / 8>(group, sums, drain, scales, work.units);
      } else if (middle < Config::block_m && tile.count <= middle) {
        group_multiply<Config, middle / 8>(group, sums, drain, scales, work.units);
      } else {
        group_multiply<Config>(group, sums, drain, scales, work.units);
      }
    }
    WgmmaCall call = all;
    take_rows<Config>(call, experts, tile);
    group_store<Config>(sums, 0xFFFFFFFFu, call, work, shared, group, warp, lane);
  }
}

// Registers of a filling thread: what the multiplying warpgroups leave, as to ask for more would wait
// forever.
template <class Config, class Plan>
__host__ __device__ constexpr int fill_registers() {
  constexpr int left =
      Plan::begin_registers * (Config::warpgroups + 1) - Plan::drain_registers * Config::warpgroups;
  return left < 56 ? left / 8 * 8 : 56;
}

template <class Config>
__device__ __forceinline__ void block_wgmma_experts(const TensorMap* codes_map, const void* x,
                                                    i64 x_row_stride, u32 shared,
                                                    const WgmmaCall& call,
                                                    const ExpertsCall& experts) {
  using Plan = WgmmaPlan<Config>;
  shared = Plan::aligned(shared);
  const int warp = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring_init<Config>(shared);
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if constexpr (Config::dependent_launch != 0) {
    ptx::grid_dependency_wait();
    ptx::grid_dependency_release();
  }
  if (warp >= Plan::consumer_warps) {
    ptx::registers_down<fill_registers<Config, Plan>()>();
    group_fill<Config>(codes_map, x, x_row_stride, call, experts, shared,
                       threadIdx.x - Plan::consumer_warps * 32);
  } else {
    ptx::registers_up<Plan::drain_registers>();
    group_drain_experts<Config>(call, experts, shared, warp / 4, warp % 4, lane);
  }
}

}  // namespace humming
