// Where things lie in an mma block's shared memory: every byte offset of that family, as constants.
// Run by nobody; constants only.
// Reads -> writes: nothing. A ring of stages [x | codes | scales | zero points], and what is added up over it.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// What a block and its warps have of the output, and how their sums meet, whatever the operands are.
template <class Config>
struct MmaSumsPlan {
  static constexpr int threads = 32 * Config::warps_m * Config::warps_n * Config::warps_k;
  static constexpr int stages = Config::num_stages;

  // Row tiles of 16 rows of w: of a block, and of a warp, which has so many columns of the product
  // (eight rows of x).
  static constexpr int row_tiles = Config::block_n / 16;
  static constexpr int warp_tiles = row_tiles / Config::warps_n;
  static constexpr int columns = Config::block_m / 8 / Config::warps_m;

  // The output tile: [row of x][row of w] fp32; four words of padding keep a fragment's stores off
  // each other's banks.
  static constexpr int tile_pitch = Config::block_n + 4;
  static constexpr int output_bytes = Config::block_m * tile_pitch * 4;

  // Where warps share k: each gets a part of the sums' fragments from the others and adds them up.
  static constexpr int fragments = warp_tiles * columns;
  static constexpr bool exchanged = Config::warps_k > 1 && fragments % Config::warps_k == 0;
  static constexpr int parts = exchanged ? Config::warps_k : 1;
  static constexpr int part_fragments = fragments / parts;
  static constexpr int way_threads = threads / Config::warps_k;
  static constexpr int exchange_bytes = (parts - 1) * Config::block_m * Config::block_n * 4;

  static constexpr int base_alignment = 128;
  static constexpr int sums_bytes = output_bytes > exchange_bytes ? output_bytes : exchange_bytes;
  __host__ __device__ static constexpr int with_ring(int ring_bytes) {
    return (ring_bytes > sums_bytes ? ring_bytes : sums_bytes) + base_alignment;
  }
};

// `Kind` is void where x has 16 bits; mma_bytes_plan.cuh is for codes.
template <class Config, class Kind = void>
struct MmaPlan : MmaSumsPlan<Config> {
  using Sums = MmaSumsPlan<Config>;
  static constexpr bool x_row_scaled = false;

  // What a block has of a stage, and a warp: k tiles of 64 columns.
  static constexpr int k_tiles = Config::block_k / 64;
  static constexpr int warp_k_tiles = k_tiles / Config::warps_k;

  // x: [k tile][row][64], 128 bytes a row, whose eight chunks of 16 bytes are swizzled by the row.
  static constexpr int x_line_bytes = 128;
  static constexpr int x_tile_bytes = Config::block_m * x_line_bytes;
  static constexpr int x_bytes = k_tiles * x_tile_bytes;
  static constexpr int x_chunks = x_bytes / 16;

  // Codes: [row tile][k tile][bytes of a tile], as they lie in memory.
  static constexpr int tile_bytes = 128 * Config::Codes::bits;
  static constexpr int codes = x_bytes;
  static constexpr int codes_run_bytes = k_tiles * tile_bytes;
  static constexpr int codes_bytes = Sums::row_tiles * codes_run_bytes;
  static constexpr int codes_chunks = codes_bytes / 16;

  // Scales, then zero points where there are any: [row tile][group][8][2], 16 bits each.
  static constexpr bool grouped = Config::group_size > 0;
  static constexpr int group_size = grouped ? Config::group_size : Config::block_k;
  static constexpr int groups = grouped ? (Config::block_k + group_size - 1) / group_size : 0;
  static constexpr int scales = codes + codes_bytes;
  static constexpr int group_bytes = 32;
  static constexpr int scales_bytes = Sums::row_tiles * groups * group_bytes;
  static constexpr int zeros = scales + scales_bytes;
  static constexpr int zeros_bytes = Config::has_zero_points ? scales_bytes : 0;
  static constexpr int group_chunks = (scales_bytes + zeros_bytes) / 16;

  static constexpr int stage_bytes = (zeros + zeros_bytes + 127) / 128 * 128;
  static constexpr int ring_bytes = Config::num_stages * stage_bytes;
  static constexpr int bytes = Sums::with_ring(ring_bytes);
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/mma.py says");
};

}  // namespace humming
