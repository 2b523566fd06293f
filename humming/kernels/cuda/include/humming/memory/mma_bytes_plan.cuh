// Where things lie in the shared memory of an mma block that multiplies codes: offsets as constants.
// Run by nobody; constants only.
// Reads -> writes: nothing. A ring of stages [x | codes | scales | zero points | scales of x].
// Source: own.
#pragma once
#include "humming/memory/mma_plan.cuh"

namespace humming {

template <class Config>
struct MmaPlan<Config, typename Config::IsBytes> : MmaSumsPlan<Config> {
  using Sums = MmaSumsPlan<Config>;
  using Products = typename Config::Products;

  // x: [line][row][128 bytes], whose eight chunks of 16 bytes are swizzled by the row. A line has
  // four steps of the product.
  static constexpr int line_bytes = 128;
  static constexpr int line_k = line_bytes * 8 / Products::x_bits, step_k = line_k / 4;
  static constexpr int lines = Config::block_k / line_k, warp_lines = lines / Config::warps_k;
  static constexpr int x_tile_bytes = Config::block_m * line_bytes;
  static constexpr int x_bytes = lines * x_tile_bytes;
  static constexpr int x_chunks = x_bytes / 16;

  // Codes of 8 bits: as x, [line][row of w][128]. Others: [row tile][k tile][bytes of a tile], as
  // they lie in memory.
  static constexpr bool rows = Config::Codes::bits == 8;
  static constexpr int codes = x_bytes;
  static constexpr int k_tiles = Config::block_k / 64, line_tiles = line_k / 64;
  static constexpr int tile_bytes = 128 * Config::Codes::bits;
  static constexpr int codes_run_bytes = k_tiles * tile_bytes;
  static constexpr int codes_bytes = Sums::row_tiles * codes_run_bytes;
  static constexpr int codes_chunks = codes_bytes / 16;

  // Scales of w, then zero points: [row tile][group][8][2] of 16 bits, or [row tile][group] of 32
  // where a tile shares one.
  static constexpr bool grouped = Config::group_size > 0;
  static constexpr int group_size = grouped ? Config::group_size : Config::block_k;
  static constexpr int groups = grouped ? Config::block_k / group_size : 0;
  static constexpr int group_bytes = Config::block_scales ? 4 : 32;
  static constexpr int scales = codes + codes_bytes;
  static constexpr int scales_bytes = (Sums::row_tiles * groups * group_bytes + 15) / 16 * 16;
  static constexpr int zeros = scales + scales_bytes;
  static constexpr int zeros_bytes = Config::has_zero_points ? scales_bytes : 0;
  static constexpr int group_chunks =
      Config::block_scales ? Sums::row_tiles * groups : (scales_bytes + zeros_bytes) / 16;

  // Sums of so many columns are promoted to fp32; 0: only those over all of k.
  static constexpr int promoted = Config::promoted;
  static constexpr bool block_scaled = Products::block_scaled;
  static constexpr int part_k = block_scaled ? Config::x_group_size
                                : promoted   ? promoted
                                             : Config::block_k;
  // Scales of x, where groups have their own: [part_k columns of the stage][row] fp32.
  static constexpr bool x_grouped = Config::x_group_size > 0;
  static constexpr bool x_row_scaled = !x_grouped || Config::x_rows_scaled;
  static constexpr int x_parts = !x_grouped ? 0 : Config::block_k / part_k;
  // After how many groups' scales those of rows come.
  static __device__ __forceinline__ i64 groups_of_x(int k) {
    constexpr int size = x_grouped ? Config::x_group_size : 1;
    return x_grouped ? (k + size - 1) / size : 0;
  }
  static constexpr int x_scales = zeros + zeros_bytes;
  static constexpr int x_scales_bytes = x_parts * Config::block_m * 4;

  static constexpr int stage_bytes = (x_scales + x_scales_bytes + 127) / 128 * 128;
  static constexpr int ring_bytes = Config::num_stages * stage_bytes;
  static constexpr int bytes = Sums::with_ring(ring_bytes);
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/mma_bytes.py says");
};

}  // namespace humming
