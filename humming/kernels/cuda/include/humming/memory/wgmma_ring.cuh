// The ring of x and weights between the warp that fills it and the warpgroups that multiply.
// Run by Fill: one thread; Drain: the warpgroups.
// Reads -> writes: x [m, k] and packed codes by tensor maps -> shared memory; x as panels
//   [block_m][64] with the 128-byte swizzle, codes as they are packed; zeros past m, n and k.
// Source: PTX ISA 9.0, asynchronous copies and matrix descriptors. A slot is filled again after an
//   arrival of every consumer warp, so that reads come before the copy engine's writes; in a cluster
//   of every block's, as each brings a share of x for all.
#pragma once
#include "humming/memory/barrier.cuh"
#include "humming/memory/code_words.cuh"
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/grid.cuh"
#include "humming/ptx/move.cuh"
#include "humming/ptx/tensor.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

struct RingPlace {
  u32 slot = 0, parity = 0;

  template <u32 stages>
  __device__ __forceinline__ void advance() {
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

template <class Config>
__device__ __forceinline__ void ring_init(u32 shared) {
  using Plan = WgmmaPlan<Config>;
#pragma unroll
  for (int s = 0; s < Config::num_stages; ++s) {
    ptx::mbarrier_init(shared + Plan::full_barriers + 8 * s, Config::grouped ? 129 : 1);
    ptx::mbarrier_init(shared + Plan::empty_barriers + 8 * s,
                       Plan::consumer_warps * Config::cluster_n);
  }
#pragma unroll
  for (int g = 0; g < Config::warpgroups; ++g) {
    ptx::mbarrier_init(shared + Plan::exchange_barriers + 16 * g, 1);
    ptx::mbarrier_init(shared + Plan::exchange_barriers + 16 * g + 8, 4 * Config::split_k);
  }
}

template <class Config>
struct RingFill {
  using Plan = WgmmaPlan<Config>;

  const TensorMap* x_map;
  const TensorMap* codes_map;
  u32 shared;
  RingPlace place;

  // Weights of stage `s` (of the work's run) into the next slot, once it is free.
  __device__ __forceinline__ void weights(const WgmmaWork& work, int s) {
    const u32 full = shared + Plan::full_barriers + 8 * place.slot;
    wait_full(shared + Plan::empty_barriers + 8 * place.slot, place.parity ^ 1);
    ptx::mbarrier_expect(full, Plan::stage_bytes);
    ptx::tensor_copy(shared + Plan::weight_ring + place.slot * Plan::weight_stage_bytes, codes_map,
                     (work.first * 2 + s) * (Plan::piece_bytes / 4), work.tile_n * Plan::row_tiles,
                     full);
  }
  // x of the same stage into the same slot; goes on to the next slot.
  __device__ __forceinline__ void x(const WgmmaWork& work, int s) {
    const u32 full = shared + Plan::full_barriers + 8 * place.slot;
    const u32 target = shared + Plan::x_ring + place.slot * Plan::x_stage_bytes;
    const int column = (work.first * 2 + s) * Plan::stage_k, row = work.tile_m * Config::block_m;
    if constexpr (Config::cluster_n == 1) {
      ptx::tensor_copy(target, x_map, column, row, full);
    } else {
      constexpr u16 all = (1 << Config::cluster_n) - 1;
      const int share = work.tile_n % Config::cluster_n;
      ptx::tensor_copy_multicast(target + share * Plan::x_share_bytes, x_map, column,
                                 row + share * (Config::block_m / Config::cluster_n), full, all);
    }
    place.advance<Config::num_stages>();
  }
};

template <class Config>
struct RingDrain {
  using Plan = WgmmaPlan<Config>;

  u32 shared, own_weights;  // this lane's first words of its warp's first row tile
  int lane;
  RingPlace place;

  __device__ __forceinline__ RingDrain(u32 shared_, int group, int warp, int lane_)
      : shared(shared_),
        own_weights(shared_ + Plan::weight_ring +
                    (group * Config::tiles_n * 4 + warp) * Plan::piece_bytes +
                    TilePlanes<Config::code_bits>::lane_offset(lane_)),
        lane(lane_) {}

  __device__ __forceinline__ void acquire() const {
    wait_full(shared + Plan::full_barriers + 8 * place.slot, place.parity);
    if constexpr (Config::grouped) ptx::fence_proxy_async();  // x was copied by threads
  }
  // The codes of row tile `t` of this warp.
  __device__ __forceinline__ void load(CodeWords<Config::code_bits>& words, int t) const {
    thread_load_codes<Config::code_bits>(
        words, own_weights + place.slot * Plan::weight_stage_bytes + t * 4 * Plan::piece_bytes,
        lane);
  }
  // The descriptor of 16 columns from 16 * step on, from the stage's own low word: 128-byte swizzle,
  // eight rows 1024 bytes apart.
  __device__ __forceinline__ u32 descriptor_base() const {
    return (shared + Plan::x_ring) / 16 + (1u << 16) + place.slot * (Plan::x_stage_bytes / 16);
  }
  __device__ __forceinline__ static u64 descriptor(u32 base, int step) {
    return static_cast<u64>(base + step * 2) | (64ull << 32 | 1ull << 62);
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
