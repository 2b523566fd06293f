// The ring of x, weights and scales of x between the warp that fills it and the warpgroups that
//   multiply, in bytes.
// Run by Fill: one thread; Drain: the warpgroups.
// Reads -> writes: codes of x [m, k], weights and scales by tensor maps -> shared memory; rows of
//   bytes as panels [rows][128] with the 128-byte swizzle, smaller codes as they are packed; zeros
//   past m and n.
// Source: PTX ISA 9.0, asynchronous copies and matrix descriptors. Slots are handed on as in
//   wgmma_ring.cuh.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/wgmma8_plan.cuh"
#include "humming/memory/wgmma_ring.cuh"
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/tensor.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

// What the copy engine must know of a call.
struct Wgmma8Maps {
  const TensorMap* x;
  const TensorMap* codes;
  const TensorMap* scales;  // of groups of x, or of groups of w that codes take on
};

template <class Config>
__device__ __forceinline__ void ring8_init(u32 shared) {
  using Plan = Wgmma8Plan<Config>;
#pragma unroll
  for (int s = 0; s < Config::num_stages; ++s) {
    ptx::mbarrier_init(shared + Plan::full_barriers + 8 * s, Config::grouped ? 129 : 1);
    ptx::mbarrier_init(shared + Plan::empty_barriers + 8 * s, Plan::slot_warps * Config::cluster_n);
  }
  if constexpr (Config::split_k > 1) {
#pragma unroll
    for (int g = 0; g < Plan::row_groups; ++g) {
      ptx::mbarrier_init(shared + Plan::exchange_barriers + 16 * g, 1);
      ptx::mbarrier_init(shared + Plan::exchange_barriers + 16 * g + 8, 4 * Config::split_k);
    }
  }
}

template <class Config>
struct Ring8Fill {
  using Plan = Wgmma8Plan<Config>;

  Wgmma8Maps maps;
  u32 shared;
  RingPlace place;

  // Weights of unit `u` (of the work's run) into the next slot, once it is free; of experts those
  // after `before` row tiles.
  __device__ __forceinline__ void weights(const WgmmaWork& work, int u, int before = 0) {
    const u32 full = shared + Plan::full_barriers + 8 * place.slot;
    const u32 target = shared + Plan::weight_ring + place.slot * Plan::weight_stage_bytes;
    wait_full(shared + Plan::empty_barriers + 8 * place.slot, place.parity ^ 1);
    ptx::mbarrier_expect(full, Config::grouped ? Plan::grouped_bytes : Plan::stage_bytes);
    const int unit = work.first + u, row_tile = before + work.tile_n * Plan::row_tiles;
    if constexpr (Plan::direct) {
      ptx::tensor_copy(target, maps.codes, unit * Plan::unit_k, row_tile * 16, full);
    } else {
      ptx::tensor_copy(target, maps.codes, unit * (Plan::unit_k * 16 * Config::code_bits / 32),
                       row_tile, full);
    }
    if constexpr (Plan::scaled_codes)
      ptx::tensor_copy(scales_target(), maps.scales, unit * (Plan::row_tile_scale_bytes / 4),
                       row_tile, full);
  }
  // x of the same unit into the same slot; goes on to the next slot.
  __device__ __forceinline__ void x(const WgmmaWork& work, int u) {
    const u32 full = shared + Plan::full_barriers + 8 * place.slot;
    const u32 target = shared + Plan::x_ring + place.slot * Plan::x_stage_bytes;
    const int unit = work.first + u, column = unit * Plan::unit_k;
    const int row = work.tile_m * Config::block_m;
    if constexpr (Config::x_group_size != 0)
      ptx::tensor_copy(scales_target(), maps.scales, row, unit, full);
    if constexpr (Config::cluster_n == 1) {
      ptx::tensor_copy(target, maps.x, column, row, full);
    } else {
      constexpr u16 all = (1 << Config::cluster_n) - 1;
      const int share = work.tile_n % Config::cluster_n;
      ptx::tensor_copy_multicast(target + share * Plan::x_share_bytes, maps.x, column,
                                 row + share * (Config::block_m / Config::cluster_n), full, all);
    }
    place.advance<Config::num_stages>();
  }
  __device__ __forceinline__ u32 scales_target() const {
    return shared + Plan::scale_ring + place.slot * Plan::scale_stage_bytes;
  }
};

template <class Config>
struct Ring8Drain {
  using Plan = Wgmma8Plan<Config>;

  u32 shared;
  int group, warp, lane;
  RingPlace place;

  // Goes on to this warpgroup's next unit, which is the next of its turns.
  __device__ __forceinline__ void next() {
    if constexpr (Plan::turns == 1) {
      place.advance<Config::num_stages>();
    } else {
      skip(Plan::turns);
    }
  }
  // Which of the turns of the work that begins here a warpgroup has: always the same slots, so that it
  // has seen all of their phases.
  __device__ __forceinline__ int turn_of(int group) const {
    return (group - static_cast<int>(place.slot)) & (Plan::turns - 1);
  }
  __device__ __forceinline__ void skip_to_turn(int turn) {
    if constexpr (Plan::turns > 1) skip(turn);
  }
  __device__ __forceinline__ void skip(u32 units) {
    const u32 sum = place.slot + units;
    place.parity ^= sum / Config::num_stages & 1;
    place.slot = sum % Config::num_stages;
  }
  __device__ __forceinline__ void acquire() const {
    wait_full(shared + Plan::full_barriers + 8 * place.slot, place.parity);
    if constexpr (Config::grouped) ptx::fence_proxy_async();  // x was copied by threads
  }
  // The low word of a descriptor of rows of bytes from `address` on: 128-byte swizzle, eight rows
  // 1024 bytes apart. A step of 32 columns is two further.
  static __device__ __forceinline__ u32 base_at(u32 address) { return address / 16 + (1u << 16); }
  static __device__ __forceinline__ u64 descriptor(u32 base, int step) {
    return static_cast<u64>(base + step * 2) | (64ull << 32 | 1ull << 62);
  }
  // x, from row `row` of the tile on.
  __device__ __forceinline__ u32 x_base(int row) const {
    return base_at(shared + Plan::x_ring + place.slot * Plan::x_stage_bytes + row * Plan::unit_k);
  }
  // Weights of bytes: tile `t` of this warpgroup.
  __device__ __forceinline__ u32 weights_base(int t) const {
    return base_at(shared + Plan::weight_ring + place.slot * Plan::weight_stage_bytes +
                   (group * Config::tiles_n + t) * (64 * Plan::unit_k));
  }
  // Codes of 4 bits: this lane's words of half a unit of this warp's row tile of tile `t`.
  __device__ __forceinline__ Words4 words(int t, int half) const {
    constexpr int tile_bytes = 16 * Plan::unit_k / 2;
    return ptx::load_shared_words4(shared + Plan::weight_ring +
                                   place.slot * Plan::weight_stage_bytes +
                                   ((group * Config::tiles_n + t) * 4 + warp) * tile_bytes +
                                   half * (tile_bytes / 2) + lane * 16);
  }
  // The pair of scales of rows g and g + 8 of the group of `step`, of this warp's row tile of tile
  // `t`.
  __device__ __forceinline__ u32 group_scales(int t, int step) const {
    return ptx::load_shared_u32(shared + Plan::scale_ring + place.slot * Plan::scale_stage_bytes +
                                ((group * Config::tiles_n + t) * 4 + warp) *
                                    Plan::row_tile_scale_bytes +
                                step * 32 + lane / 4 * 4);
  }
  // Scales of this lane's two rows of x of column `c`.
  __device__ __forceinline__ float2 x_scales(int c) const {
    return ptx::load_shared_f32x2(shared + Plan::scale_ring + place.slot * Plan::scale_stage_bytes +
                                  c * 32 + lane % 4 * 8);
  }
  // This warp has done with `slot`.
  __device__ __forceinline__ void release(u32 slot) const {
    __syncwarp();
    const u32 barrier = shared + Plan::empty_barriers + 8 * slot;
    if constexpr (Config::cluster_n == 1) {
      if (lane == 0) ptx::mbarrier_arrive(barrier);
    } else {
      if (lane < Config::cluster_n) ptx::cluster_barrier_arrive(ptx::cluster_map(barrier, lane));
    }
  }
};

}  // namespace humming
