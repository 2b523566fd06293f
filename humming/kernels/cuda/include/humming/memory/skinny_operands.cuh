// One warp's rings of x (a slot: one unit, 128 k, of every row) and of scales (a slot: one unit's
//   groups of every row tile of the block).
// Run by a whole converged warp; no other warp sees the ring.
// Reads -> writes: x [m, k] and packed scales in global memory -> shared memory (rows padded by 16
//   bytes) -> B fragments.
// Source: own. cp.async, 16 bytes a lane; plain loads and stores on sm_75. Rows of x are aligned to
//   16 bytes.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/skinny_plan.cuh"
#include "humming/ptx/matrix.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

template <class Config>
struct Operands {
  using Plan = SkinnyPlan<Config>;
  static constexpr int chunks = Plan::unit_k / 8;  // of 16 bytes

  const char* x;       // this lane's part of its first row; all, by element
  const char* scales;  // this lane's part; of the first row tile, if more than one
  i64 zeros_offset;    // from scales to zero points
  const int* permutation;
  int row_tile_bytes, last_tile;       // of scales
  int m, k, group, group_step, units;  // group: of the x to be copied next
  i64 two_rows_bytes;
  static constexpr int gathered = Config::grouped ? (Config::block_m + 1) / 2 : 1;
  i64 row_bytes[gathered];  // where this lane's rows begin, of experts
  int rows_left;            // of this lane, two apart (cp.async)
  u32 lane_target;          // of this lane, in a slot
  u32 ring, barriers, lane;

  __device__ __forceinline__ Operands(const SkinnyCall& call, const SkinnyRows& rows,
                                      const SkinnyShare& share, u32 shared, int warp, int lane_)
      : m(rows.count),
        k(call.k),
        group(share.first_group),
        group_step(share.group_step),
        units(share.units),
        two_rows_bytes(call.x_row_stride * 4),
        rows_left(rows.count - lane_ / chunks),
        lane_target(lane_ / chunks * Plan::x_row_bytes + lane_ % chunks * 16),
        zeros_offset(static_cast<const char*>(call.zero_points) -
                     static_cast<const char*>(call.scales)),
        permutation(call.permutation),
        row_tile_bytes(share.groups * Plan::groups * 32),
        last_tile(share.row_tiles - 1),
        ring(shared + Plan::operand_rings + warp * Plan::operand_ring_bytes),
        barriers(shared + (warp * Plan::warp_barriers + Plan::weight_stages) * 8),
        lane(lane_) {
    int row = lane / chunks, chunk = lane % chunks;
    x = static_cast<const char*>(call.x);
    if constexpr (Config::grouped) {
#pragma unroll
      for (int r = 0; r < gathered; ++r)
        row_bytes[r] = x_row_of(call, rows.first + min(row + 2 * r, m - 1)) * call.x_row_stride * 2;
    } else {
      x += (rows.first + row) * call.x_row_stride * 2;
    }
    if constexpr (!Config::x_by_element)
      x += (static_cast<i64>(share.first_group) * Plan::unit_k + chunk * 8) * 2;
    scales = static_cast<const char*>(call.scales);
    if constexpr (Plan::groups == 1) {
      int tile = min(static_cast<int>(lane / 2), share.row_tiles - 1), half = lane % 2;
      scales += (static_cast<i64>(share.row_tile + tile) * share.groups + share.first_group) * 32 +
                half * 16;
    } else {
      scales += (static_cast<i64>(share.row_tile) * share.groups + share.first_group) *
                (Plan::groups * 32);
    }
#if __CUDA_ARCH__ >= 800
    if (lane == 0) {
#pragma unroll
      for (int s = 0; s < Config::x_stages; ++s) ptx::mbarrier_init(barriers + 8 * s, 32);
    }
#endif
  }

  __device__ __forceinline__ static void copy_chunk(u32 target, const void* source, u32 bytes) {
#if __CUDA_ARCH__ >= 800
    ptx::cp_async_16(target, source, bytes);
#else
    Words4 v = {};
    if (bytes) v = ptx::load_global_words4(source);
    ptx::store_shared_words4(target, v);
#endif
  }

  __device__ __forceinline__ u32 slot(int u) const {
    return ring + u % Config::x_stages * Plan::x_slot_bytes;
  }
  __device__ __forceinline__ u32 scale_slot(int u) const {
    return ring + Config::x_stages * Plan::x_slot_bytes +
           u % Plan::scale_stages * Plan::scale_slot_bytes;
  }
  __device__ __forceinline__ u32 barrier(int u) const {
    return barriers + u % Config::x_stages * 8;
  }

  // Scales and x of a unit go to one slot and one barrier; scales first, as they do not wait for
  // the kernel before.
  __device__ __forceinline__ void issue_scales(int u) {
    if constexpr (Plan::groups > 0) {
      if (u >= units) return;
      u32 target = scale_slot(u);
      if constexpr (Plan::groups == 1) {
        if (lane < Config::tiles_n * 2) copy_pairs(target + lane * 16, scales);
      } else {
        constexpr int chunks_of_tile = Plan::groups * 2, all = Config::tiles_n * chunks_of_tile;
#pragma unroll
        for (int c = 0; c < all; c += 32) {
          const int own = c + static_cast<int>(lane);
          const int tile = min(own / chunks_of_tile, last_tile);
          if (own < all)
            copy_pairs(target + own * 16, scales + static_cast<i64>(tile) * row_tile_bytes +
                                              own % chunks_of_tile * 16);
        }
      }
      scales += group_step * (Plan::groups * 32);
    }
  }

  // 16 bytes of scales, and of zero points where there are some.
  __device__ __forceinline__ void copy_pairs(u32 target, const char* source) const {
    copy_chunk(target, source, 16);
    if constexpr (Config::has_zero_points)
      copy_chunk(target + Plan::zeros, source + zeros_offset, 16);
  }

  __device__ __forceinline__ void issue_x(int u) {
    if (u >= units) return;
    u32 target = slot(u);
    const char* source = x;
    if constexpr (Config::x_by_element) {
      issue_elements(target + lane_target);
    } else {
      u32 bytes = group * Plan::unit_k + static_cast<int>(lane % chunks) * 8 < k ? 16 : 0;
      target += lane_target;
#pragma unroll
      for (int r = 0; r < Config::block_m; r += 2) {
        if constexpr (Config::grouped) source = x + row_bytes[r / 2];
        if (r < rows_left) copy_chunk(target + r * Plan::x_row_bytes, source, bytes);
        source += two_rows_bytes;
      }
      x += static_cast<i64>(group_step) * (Plan::unit_k * 2);
    }
#if __CUDA_ARCH__ >= 800
    ptx::cp_async_arrive(barrier(u));
#endif
    group += group_step;
  }

  // Eight numbers at a time, from wherever they are: by the permutation, at 2 whole bytes.
  __device__ __forceinline__ void issue_elements(u32 target) const {
    const int column = group * Plan::unit_k + static_cast<int>(lane % chunks) * 8;
    int place[8];
    if (permutation != nullptr && column + 8 <= k) {  // eight of them begin at 32 whole bytes
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        const Words4 four = ptx::load_global_words4(permutation + column + j);
#pragma unroll
        for (int i = 0; i < 4; ++i) place[j + i] = static_cast<int>(four.word[i]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        place[j] = column + j < k ? column + j : -1;
        if (permutation != nullptr && place[j] >= 0)
          place[j] = static_cast<int>(ptx::load_global_u32(permutation + place[j]));
      }
    }
    const char* row = x;
#pragma unroll(Config::grouped ? 16 : 4)
    for (int r = 0; r < Config::block_m; r += 2) {
      if constexpr (Config::grouped) row = x + row_bytes[r / 2];
      if (r < rows_left) {
        Words4 v = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (place[j] >= 0)
            v.word[j / 2] |= static_cast<u32>(ptx::load_global_u16(row + place[j] * 2ll))
                             << j % 2 * 16;
        }
        ptx::store_shared_words4(target + r * Plan::x_row_bytes, v);
      }
      row += two_rows_bytes;
    }
  }

  __device__ __forceinline__ void acquire(int u) {
    wait_full(barrier(u), u / Config::x_stages & 1);
#if __CUDA_ARCH__ < 800
    __syncwarp();  // the copies were plain stores of all lanes
#else
    if constexpr (Config::x_by_element) __syncwarp();
#endif
  }

  // All B fragments of unit `u`: b[c][s] multiplies k step s of the group with rows 8c..8c+7 of x.
  // Rows past m repeat the last one.
  __device__ __forceinline__ void fragments(u32 (&b)[Plan::columns][8][2], int u) const {
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
      int row = min(8 * c + static_cast<int>(lane % 8), m - 1);
      u32 line = slot(u) + row * Plan::x_row_bytes + lane / 8 * 16;
#pragma unroll
      for (int s = 0; s < 8; s += 2)
        ptx::ldmatrix_x4(b[c][s][0], b[c][s][1], b[c][s + 1][0], b[c][s + 1][1], line + s * 32);
    }
  }

  // The scales of rows g (low half) and g + 8 (high half) of row tile `t`, g = lane / 4, in group
  // `group` of the unit.
  __device__ __forceinline__ u32 scale_pair(int u, int t, int group) const {
    return ptx::load_shared_u32(scale_slot(u) + (t * Plan::groups + group) * 32 + lane / 4 * 4);
  }
  __device__ __forceinline__ u32 zero_pair(int u, int t, int group) const {
    return ptx::load_shared_u32(scale_slot(u) + Plan::zeros + (t * Plan::groups + group) * 32 +
                                lane / 4 * 4);
  }
};

}  // namespace humming
