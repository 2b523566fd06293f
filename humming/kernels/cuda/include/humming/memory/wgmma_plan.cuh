// Where things lie in the shared memory of a wgmma block: every byte offset of that family, as
//   constants, and where it begins.
// Run by nobody; constants only.
// Reads -> writes: nothing. [barriers | x ring | weight ring | exchange | staged output].
// Source: own.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

template <class Config>
struct WgmmaPlan {
  static constexpr int consumer_warps = 4 * Config::warpgroups;
  static constexpr int threads = 32 * (consumer_warps + 4);  // one warp of the last four fills
  static constexpr int columns = Config::block_m / 8;
  static constexpr int group_rows = 64 * Config::tiles_n;  // rows of w that a warpgroup has
  static constexpr int block_rows = group_rows * Config::warpgroups;
  static constexpr int row_tiles = block_rows / 16;

  // A unit of work is one group of k; a stage is half of one.
  static constexpr int unit_k = 128, stage_k = 64;
  static constexpr int x_stage_bytes = Config::block_m * stage_k * 2;
  static constexpr int x_share_bytes = x_stage_bytes / Config::cluster_n;  // that a block brings
  static constexpr int piece_bytes = 2 * stage_k * Config::code_bits;      // of one row tile
  static constexpr int weight_stage_bytes = row_tiles * piece_bytes;
  static constexpr int stage_bytes = x_stage_bytes + weight_stage_bytes;

  // Sets of A registers: products of one step each that run, or wait to, while another is made ready.
  static constexpr bool crowded = Config::tiles_n > 2 || Config::blocks_per_sm > 1;
  static constexpr int sets =
      Config::tiles_n > 1 && Config::tiles_n* Config::block_m > 128 && crowded ? 2 : 4;

  // Registers of a thread. A block begins with as many for each, in eights, and its warpgroups share
  // those out: to ask for more than there are would wait forever.
  static constexpr int even_share = 65536 / (Config::blocks_per_sm * threads) / 8 * 8;
  static constexpr int begin_registers = even_share < 240 ? even_share : 240;
  static constexpr int fill_registers = 32;
  static constexpr int drain_share =
      (begin_registers * (Config::warpgroups + 1) - fill_registers) / Config::warpgroups / 8 * 8;
  static constexpr int drain_registers = drain_share < 240 ? drain_share : 240;

  static constexpr int full_barriers = 0;
  static constexpr int empty_barriers = 8 * Config::num_stages;
  static constexpr int flags = 16 * Config::num_stages;  // one word a warpgroup
  static constexpr int exchange_barriers = flags + 16;   // two a warpgroup
  static constexpr int x_ring = 1024;
  static constexpr int weight_ring = x_ring + Config::num_stages * x_stage_bytes;
  static constexpr int exchange = weight_ring + Config::num_stages * weight_stage_bytes;

  // Blocks of a cluster: along n, or along k.
  static constexpr int cluster = Config::cluster_n * Config::split_k;

  // Columns of eight rows of x; two blocks of a multiprocessor have fewer registers to spare. A tile
  // and as many columns are a piece of the sums, which one of the blocks that share k stores.
  static constexpr int staged_columns = Config::block_m % 32 == 0 && Config::blocks_per_sm == 1 &&
                                                Config::tiles_n * columns / 4 >= Config::split_k
                                            ? 4
                                            : 2;
  static constexpr int pieces = Config::tiles_n * columns / staged_columns;
  static constexpr int own_pieces = (pieces + Config::split_k - 1) / Config::split_k;
  static constexpr int piece_sums_bytes = staged_columns * 128 * 16;  // of a warpgroup
  static constexpr int exchange_bytes =                               // of a warpgroup
      (Config::split_k - 1) * own_pieces * piece_sums_bytes;
  // Of the output, `num_stores` times: as the copy engine takes it, 128 bytes of each row of x after
  // another, for each tile.
  static constexpr int staged =
      (exchange + Config::warpgroups * exchange_bytes + 1023) / 1024 * 1024;
  static constexpr int staged_row_bytes = group_rows * 2;
  static constexpr int store_bytes = staged_columns * 8 * staged_row_bytes;
  static constexpr int staged_bytes = Config::num_stores * store_bytes;  // of a warpgroup
  static constexpr int bytes =
      staged + Config::warpgroups * staged_bytes + 1024;  // the base is aligned to 1024 by hand
  static __device__ __forceinline__ u32 aligned(u32 shared) {
    return (shared + 1023) / 1024 * 1024;
  }
  static_assert(bytes == Config::smem_bytes, "as the formula in legality/wgmma.py says");
};

}  // namespace humming
