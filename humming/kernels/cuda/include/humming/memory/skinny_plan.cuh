// Where things lie in a skinny block's shared memory: every byte offset of that family, as
//   constants.
// Run by nobody; constants only.
// Reads -> writes: nothing. [barriers | weight rings | operand rings], partials over the rings,
//   gather last.
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

template <class Config>
struct SkinnyPlan {
  static constexpr int ways = Config::warps;  // warps of the block, which share k
  static constexpr int unit_k = 128;  // two 16x64 tiles, a piece of contiguous bytes a row tile
  static constexpr int bits = Config::Codes::bits;
  static constexpr int piece_bytes = 256 * bits;
  static constexpr int groups = Config::group_size ? unit_k / Config::group_size : 0;  // of a unit
  static constexpr int columns =
      (Config::block_m + 7) / 8;  // n8 columns of the product: 8 rows of x each
  static constexpr int block_rows = 16 * Config::tiles_n;
  // The sum that takes the codes' bias away, in so many parts: experts' units are few, and each
  // would wait for eight products one after another.
  static __device__ constexpr int bias_chains() {
    return !Config::grouped ? 1 : columns == 1 ? 4 : 2;
  }

  static constexpr bool weights_in_registers = Config::num_stages == 0;
  static constexpr int stage_tiles = weights_in_registers ? Config::tiles_n : Config::stage_tiles;
  static constexpr int stage_bytes = stage_tiles * piece_bytes;
  static constexpr int weight_stages = weights_in_registers ? 0 : Config::num_stages;

  static constexpr int x_row_bytes =
      unit_k * 2 + 16;  // padded: the eight rows of an ldmatrix fall on different banks
  static constexpr int x_slot_bytes = Config::block_m * x_row_bytes;
  static constexpr int zeros = Config::tiles_n * groups * 32;  // in a slot, after the scales
  static constexpr int scale_slot_bytes = zeros * (1 + Config::has_zero_points);
  static constexpr int scale_stages =
      Config::x_stages + 1;  // x leaves for registers at once, scales are read to a unit's end

  static constexpr int warp_barriers = weight_stages + Config::x_stages;
  static constexpr int weight_rings = (Config::warps * warp_barriers * 8 + 15) / 16 * 16;
  static constexpr int weight_ring_bytes = weight_stages * stage_bytes;
  static constexpr int operand_rings = weight_rings + Config::warps * weight_ring_bytes;
  static constexpr int operand_ring_bytes =
      Config::x_stages * x_slot_bytes + scale_stages * scale_slot_bytes;
  static constexpr int rings_end = operand_rings + Config::warps * operand_ring_bytes;

  // Partial sums of one warp: [block_m][block_rows + 4] fp32; four words of padding keep a
  // fragment's stores off each other's banks.
  static constexpr int partials = weight_rings;
  static constexpr int partial_pitch = block_rows + 4;
  static constexpr int way_partial_bytes = Config::block_m * partial_pitch * 4;
  static constexpr int partials_end = partials + Config::warps * way_partial_bytes;

  // Pairs of rows of the block's output, dealt out to the blocks that share its k.
  static constexpr int pairs = Config::block_m * block_rows / 2;
  static constexpr int owned_pairs = (pairs + Config::split_k - 1) / Config::split_k;
  static constexpr int gather =
      ((rings_end > partials_end ? rings_end : partials_end) + 15) / 16 * 16;
  static constexpr int gather_bytes = Config::split_k > 1 ? Config::split_k * owned_pairs * 8 : 0;
  static constexpr int bytes = gather + gather_bytes;
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/skinny.py says");
};

}  // namespace humming
