// Where things lie in the shared memory of a skinny block of warpgroups: every byte offset, as
//   constants, and where it begins.
// Run by nobody; constants only.
// Reads -> writes: nothing. [barriers | x rings | scale rings | weight rings], partials over the
//   rings, gather last.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

template <class Config>
struct WarpgroupPlan {
  static constexpr int ways = Config::warps / 4;  // warpgroups of the block, which share k
  static constexpr int unit_k = 128;
  static constexpr int bits = Config::Codes::bits;
  static constexpr int piece_bytes = 256 * bits;
  static constexpr int columns = (Config::block_m + 7) / 8;
  static constexpr int block_rows = 64 * Config::tiles_n;

  static constexpr int stage_tiles = Config::stage_tiles;
  static constexpr int stage_bytes = stage_tiles * piece_bytes;
  static constexpr int weight_stages = Config::num_stages;
  static constexpr int warp_barriers = weight_stages;

  static constexpr int panel_bytes = columns * 1024;  // 64 k of all rows of x
  static constexpr int x_slot_bytes = 2 * panel_bytes;
  static constexpr int x_ring_bytes = Config::x_stages * x_slot_bytes;
  static constexpr int groups = Config::group_size ? unit_k / Config::group_size : 0;  // of a unit
  static constexpr int zeros = Config::tiles_n * groups * 32;  // in a slot, after the scales
  static constexpr int scale_slot_bytes = zeros * (1 + Config::has_zero_points);
  static constexpr int scale_ring_bytes = Config::x_stages * scale_slot_bytes;
  static constexpr int weight_ring_bytes = weight_stages * stage_bytes;

  static constexpr int x_barriers = Config::warps * warp_barriers * 8;
  static constexpr int x_rings = (x_barriers + ways * Config::x_stages * 16 + 1023) / 1024 * 1024;
  static constexpr int scale_rings = x_rings + ways * x_ring_bytes;
  static constexpr int weight_rings = scale_rings + Config::warps * scale_ring_bytes;
  static constexpr int rings_end = weight_rings + Config::warps * weight_ring_bytes;

  static constexpr int partials = x_rings;
  static constexpr int partial_pitch = block_rows + 4;
  static constexpr int way_partial_bytes = Config::block_m * partial_pitch * 4;
  static constexpr int partials_end = partials + ways * way_partial_bytes;

  static constexpr int pairs = Config::block_m * block_rows / 2;
  static constexpr int owned_pairs = (pairs + Config::split_k - 1) / Config::split_k;
  static constexpr int gather =
      ((rings_end > partials_end ? rings_end : partials_end) + 15) / 16 * 16;
  static constexpr int gather_bytes = Config::split_k > 1 ? Config::split_k * owned_pairs * 8 : 0;
  static constexpr int bytes = gather + gather_bytes + 1024;  // the base is aligned to 1024 by hand
  static __device__ __forceinline__ u32 aligned(u32 shared) {
    return (shared + 1023) / 1024 * 1024;
  }
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/skinny.py says");
};

}  // namespace humming
