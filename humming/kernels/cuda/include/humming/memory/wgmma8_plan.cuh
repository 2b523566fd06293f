// Where things lie in the shared memory of a wgmma8 block: every byte offset of that family, as
//   constants, and which accumulators its warpgroups have.
// Run by nobody; constants only.
// Reads -> writes: nothing. [barriers | table of scaled codes | x ring | weight ring | scales of x, or
//   of groups of w | staged output | sums of warpgroups that take turns,
//   and of other blocks of the cluster].
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

template <class Config>
struct Wgmma8Plan {
  static constexpr int consumer_warps = 4 * Config::warpgroups;
  static constexpr int threads = 32 * (consumer_warps + 4);  // one warp of the last four fills
  static constexpr int columns = Config::block_m / 8;
  // Warpgroups that have the same rows of w take units of k in turns.
  static constexpr int turns = Config::k_warpgroups, row_groups = Config::warpgroups / turns;
  static constexpr int group_rows = 64 * Config::tiles_n;  // rows of w that a warpgroup has
  static constexpr int block_rows = group_rows * row_groups;
  static constexpr int slot_warps = consumer_warps / turns;  // that read a stage
  static constexpr int row_tiles = block_rows / 16;

  static constexpr int cluster = Config::cluster_n * Config::split_k;  // blocks of one

  // A stage is a unit of work: 128 columns, 128 bytes of a row of x.
  static constexpr int unit_k = 128, steps = unit_k / 32;
  static constexpr int x_stage_bytes = Config::block_m * unit_k;
  static constexpr int x_share_bytes = x_stage_bytes / Config::cluster_n;  // that a block brings
  static constexpr int weight_stage_bytes = block_rows * unit_k * Config::code_bits / 8;
  // Scales in the ring: of groups of x, or those of w that codes take on, 16 rows by four groups.
  static constexpr bool scaled_codes = Config::group_size == 32;
  static constexpr int row_tile_scale_bytes = 128;
  static constexpr int scale_bytes = Config::x_group_size ? Config::block_m * 4
                                     : scaled_codes       ? row_tiles * row_tile_scale_bytes
                                                          : 0;
  static constexpr int scale_stage_bytes = (scale_bytes + 127) / 128 * 128;
  static constexpr int stage_bytes = x_stage_bytes + weight_stage_bytes + scale_bytes;
  static constexpr int grouped_bytes =  // by the copy engine, of experts
      weight_stage_bytes + (scaled_codes ? scale_bytes : 0);

  // Weights of bytes go to the tensor cores from shared memory, others by registers.
  static constexpr bool direct = Config::code_bits == 8;
  static constexpr bool promoted = Config::promote != 0;
  // Few rows of x leave the tensor cores idle: they can take a code's offset away.
  static constexpr bool raw = Config::Codes::has_raw && Config::block_m <= 32 && !promoted;
  // All products of a unit are begun at once, where registers hold their fragments.
  static constexpr bool few = Config::block_m <= 32 && Config::tiles_n == 1;
  // Promoted sums: products of one unit, of as many columns at a time, are added to those before.
  static __host__ __device__ constexpr int parts_of(int used) { return used > 16 ? 2 : 1; }

  // Registers of a thread. A block begins with as many for each, in eights, and its warpgroups share
  // those out: to ask for more than there are would wait forever.
  static constexpr int even_share = 65536 / (Config::blocks_per_sm * threads) / 8 * 8;
  static constexpr int begin_registers = even_share < 240 ? even_share : 240;
  // Of those that fill: of experts they hold where rows of x begin, and what the next tile is.
  static constexpr int fill_registers = Config::grouped ? 48 : 32;
  static constexpr int drain_share =
      (begin_registers * (Config::warpgroups + 1) - fill_registers) / Config::warpgroups / 8 * 8;
  static constexpr int drain_registers = drain_share < 240 ? drain_share : 240;

  static constexpr int full_barriers = 0;
  static constexpr int empty_barriers = 8 * Config::num_stages;
  static constexpr int flags = 16 * Config::num_stages;  // one word a warpgroup
  static constexpr int exchange_barriers = flags + 16;   // two a warpgroup
  static constexpr int table = 1024;
  static constexpr int x_ring = scaled_codes ? 2048 : 1024;
  static constexpr int weight_ring = x_ring + Config::num_stages * x_stage_bytes;
  static constexpr int scale_ring = weight_ring + Config::num_stages * weight_stage_bytes;
  static constexpr int staged = scale_ring + Config::num_stages * scale_stage_bytes;

  // Columns of eight rows of x; two blocks of a multiprocessor have fewer registers to spare.
  static constexpr int staged_columns =
      Config::block_m % 32 == 0 && Config::blocks_per_sm == 1 ? 4 : 2;
  static constexpr int staged_row_bytes = group_rows * 2;
  static constexpr int staged_bytes = staged_columns * 8 * staged_row_bytes;  // of a warpgroup
  // Sums of warpgroups that took turns, but the first: [turn][tile][column][thread] of four fp32.
  static constexpr int turn_sums = staged + row_groups * staged_bytes;
  static constexpr int turn_bytes = Config::tiles_n * columns * 2048;
  // Pieces of sums that the blocks of a cluster send each other: a tile and the staged columns.
  static constexpr int pieces = Config::tiles_n * columns / staged_columns;
  static constexpr int own_pieces = (pieces + Config::split_k - 1) / Config::split_k;
  static constexpr int piece_sums_bytes = staged_columns * 2048;
  static constexpr int exchange = turn_sums + row_groups * (turns - 1) * turn_bytes;
  static constexpr int exchange_bytes =  // of a warpgroup
      (Config::split_k - 1) * own_pieces * piece_sums_bytes;
  static constexpr int bytes =
      exchange + row_groups * exchange_bytes + 1024;  // the base is aligned to 1024 by hand
  static __device__ __forceinline__ u32 aligned(u32 shared) {
    return (shared + 1023) / 1024 * 1024;
  }
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/wgmma8.py says");
};

}  // namespace humming
