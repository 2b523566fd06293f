// One warpgroup's ring of x, as wgmma wants it, and each of its warps' ring of scales.
// Run by a warpgroup of four converged warps.
// Reads -> writes: x [m, k] and packed scales in global memory -> shared memory; x as two panels
//   [columns * 8][64] with the 128-byte swizzle.
// Source: PTX ISA 9.0, matrix descriptors: chunk c of row r lies at c ^ (r & 7); eight rows are
//   1024 bytes.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/warpgroup_plan.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/warpgroup.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
struct GroupOperands {
  using Plan = WarpgroupPlan<Config>;
  static constexpr int chunks = Plan::unit_k / 8;

  const char* x;
  const char* scales;
  i64 eight_rows_bytes;
  i64 row_bytes[Config::grouped ? Plan::columns : 1];  // where this thread's rows begin, of experts
  int k, group, group_step, units, rows_left, chunk;
  u32 x_target, ring, scale_ring, barriers, lane;
  i64 zeros_offset;     // from scales to zero points
  int tile_step_bytes;  // of scales, from one row tile of this warp to its next
  int last_tile;

  __device__ __forceinline__ GroupOperands(const SkinnyCall& call, const SkinnyRows& rows,
                                           const SkinnyShare& share, u32 shared, int way, int warp,
                                           int thread)
      : eight_rows_bytes(call.x_row_stride * 16),
        k(call.k),
        group(share.first_group),
        group_step(share.group_step),
        units(share.units),
        rows_left(rows.count - thread / chunks),
        chunk(thread % chunks),
        ring(shared + Plan::x_rings + way * Plan::x_ring_bytes),
        scale_ring(shared + Plan::scale_rings + (way * 4 + warp) * Plan::scale_ring_bytes),
        barriers(shared + Plan::x_barriers + way * Config::x_stages * 16),
        lane(thread % 32),
        zeros_offset(static_cast<const char*>(call.zero_points) -
                     static_cast<const char*>(call.scales)),
        tile_step_bytes(share.row_tile_step * share.groups * Plan::groups * 32),
        last_tile(share.row_tiles - 1) {
    int row = thread / chunks;
    x = static_cast<const char*>(call.x) +
        (static_cast<i64>(share.first_group) * Plan::unit_k + chunk * 8) * 2;
    if constexpr (Config::grouped) {
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c)
        row_bytes[c] =
            x_row_of(call, rows.first + min(row + 8 * c, rows.count - 1)) * call.x_row_stride * 2;
    } else {
      x += (rows.first + row) * call.x_row_stride * 2;
    }
    x_target = chunk / 8 * Plan::panel_bytes + row * 128 + ((chunk % 8) ^ (row & 7)) * 16;
    scales = static_cast<const char*>(call.scales);
    if constexpr (Plan::groups == 1) {
      int tile = min(static_cast<int>(lane / 2), last_tile);
      scales += (static_cast<i64>(share.row_tile + tile * share.row_tile_step) * share.groups +
                 share.first_group) *
                    32 +
                lane % 2 * 16;
    } else {
      scales += (static_cast<i64>(share.row_tile) * share.groups + share.first_group) *
                (Plan::groups * 32);
    }
    if (thread == 0) {
#pragma unroll
      for (int s = 0; s < Config::x_stages; ++s) {
        ptx::mbarrier_init(barriers + 8 * s, 128);
        ptx::mbarrier_init(barriers + 8 * (Config::x_stages + s), 4);
      }
    }
  }

  __device__ __forceinline__ u32 slot(int u) const {
    return ring + u % Config::x_stages * Plan::x_slot_bytes;
  }
  __device__ __forceinline__ u32 scale_slot(int u) const {
    return scale_ring + u % Config::x_stages * Plan::scale_slot_bytes;
  }

  __device__ __forceinline__ void issue_scales(int u) {
    if constexpr (Plan::groups > 0) {
      if (u >= units) return;
      const u32 target = scale_slot(u);
      if constexpr (Plan::groups == 1) {
        if (lane < Config::tiles_n * 2) copy_pairs(target + lane * 16, scales);
      } else {
        constexpr int chunks_of_tile = Plan::groups * 2, all = Config::tiles_n * chunks_of_tile;
#pragma unroll
        for (int c = 0; c < all; c += 32) {
          const int own = c + static_cast<int>(lane), tile = min(own / chunks_of_tile, last_tile);
          if (own < all)
            copy_pairs(target + own * 16, scales + static_cast<i64>(tile) * tile_step_bytes +
                                              own % chunks_of_tile * 16);
        }
      }
      scales += group_step * (Plan::groups * 32);
    }
  }

  // 16 bytes of scales, and of zero points where there are some.
  __device__ __forceinline__ void copy_pairs(u32 target, const char* source) const {
    ptx::cp_async_16(target, source, 16);
    if constexpr (Config::has_zero_points)
      ptx::cp_async_16(target + Plan::zeros, source + zeros_offset, 16);
  }

  __device__ __forceinline__ void issue_x(int u) {
    if (u >= units) return;
    u32 target = slot(u) + x_target, bytes = group * Plan::unit_k + chunk * 8 < k ? 16 : 0;
    const char* source = x;
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
      if constexpr (Config::grouped) source = x + row_bytes[c];
      if (8 * c < rows_left) ptx::cp_async_16(target + c * 1024, source, bytes);
      source += eight_rows_bytes;
    }
    ptx::cp_async_arrive(barriers + u % Config::x_stages * 8);
    group += group_step;
    x += static_cast<i64>(group_step) * (Plan::unit_k * 2);
  }

  __device__ __forceinline__ void acquire(int u) {
    wait_full(barriers + u % Config::x_stages * 8, u / Config::x_stages & 1);
    ptx::fence_proxy_async();
  }

  // This warp has done with unit `u`.
  __device__ __forceinline__ void release(int u) {
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(barriers + (Config::x_stages + u % Config::x_stages) * 8);
  }

  // During unit `u`: the slot that the unit before left free takes the unit x_stages - 1 ahead.
  __device__ __forceinline__ void refill(int u) {
    int next = u + Config::x_stages - 1;
    if (next >= units) return;
    if (u > 0)
      wait_full(barriers + (Config::x_stages + (u - 1) % Config::x_stages) * 8,
                (u - 1) / Config::x_stages & 1);
    issue_scales(next);
    issue_x(next);
  }

  // The descriptor of k step `s` (16 of 128), from the unit's own low word: 128-byte swizzle, eight
  // rows 1024 bytes apart.
  __device__ __forceinline__ u32 descriptor_base(int u) const { return slot(u) / 16 + (1u << 16); }
  __device__ __forceinline__ static u64 descriptor(u32 base, int s) {
    return static_cast<u64>(base + (s / 4 * Plan::panel_bytes + s % 4 * 32) / 16) |
           (64ull << 32 | 1ull << 62);
  }

  // Of rows g (low half) and g + 8 of this warp's row tile `t`, in group `group` of the unit.
  __device__ __forceinline__ u32 scale_pair(int u, int t, int group) const {
    return ptx::load_shared_u32(scale_slot(u) + (t * Plan::groups + group) * 32 + lane / 4 * 4);
  }
  __device__ __forceinline__ u32 zero_pair(int u, int t, int group) const {
    return ptx::load_shared_u32(scale_slot(u) + Plan::zeros + (t * Plan::groups + group) * 32 +
                                lane / 4 * 4);
  }
};

}  // namespace humming
