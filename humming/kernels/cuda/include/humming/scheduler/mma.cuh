// Which output tile and which share of k belong to a block of the mma family. The only reader of
//   blockIdx.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: grouped raster as in Triton's tutorial on matrix products: tiles that share rows of w or of
//   x run at the same time, so that L2 gives them to all.
#pragma once
#include "humming/memory/mma_plan.cuh"

namespace humming {

// The kernel's arguments; strides in elements.
struct MmaCall {
  const void* x;
  const void* codes;
  const void* scales;
  const void* zero_points;
  const float* row_scales;
  const float* bias;  // or null
  void* out;
  // Where k is split through memory: [split_k][m][n rounded up to 8], or one tile's sums a block and
  // a word a block that is zero until they are there.
  float* partials;
  u32* arrived;
  int m, n, k;
  i64 x_row_stride, out_row_stride;
  // Of experts: rows first_row .. m - 1 of those that are sorted by experts, their places in out (or
  // null), and how many of those share a row of x. `tiles`: as many as the list has room for.
  int first_row = 0;
  const int* rows = nullptr;
  int shared = 1;
  int tiles = 0;
  // Of x in codes, whose rows are strided in bytes: of groups, [groups][x_scales_pitch], and of rows.
  const float* x_scales = nullptr;
  const float* x_row_scales = nullptr;
  i64 x_scales_pitch = 0;
};

struct MmaShare {
  int row_tile;     // the block's first row tile (16 rows of w)
  int all_tiles;    // row tiles of the whole w
  int x_row;        // the block's first row of x
  int rank;         // of this block among the split_k blocks of its output tile
  int first_stage;  // of block_k columns
  int stages;       // how many this block multiplies; may be none
};

// The tile of this number, in the order in which tiles are given to blocks.
template <class Config>
__device__ __forceinline__ void place_tile(MmaShare& share, int id, const MmaCall& call) {
  const int tiles_m =
      Config::grouped ? call.tiles : (call.m + Config::block_m - 1) / Config::block_m;
  const int tiles_n = (call.n + Config::block_n - 1) / Config::block_n;
  const int rows = min(Config::raster_group_m, tiles_m), band = rows * tiles_n;
  const int first_m = id / band * rows, in_band = id % band;
  const int height = min(tiles_m - first_m, rows);
  share.x_row = (first_m + in_band % height) * Config::block_m;
  share.row_tile = in_band / height * (Config::block_n / 16);
  share.all_tiles = (call.n + 15) / 16;
}

template <class Config>
__device__ __forceinline__ MmaShare mma_share(const MmaCall& call) {
  MmaShare share;
  place_tile<Config>(share, blockIdx.x, call);
  share.rank = blockIdx.y;
  const int all = (call.k + Config::block_k - 1) / Config::block_k;
  const int each = all / Config::split_k, more = all % Config::split_k;
  share.first_stage = share.rank * each + min(share.rank, more);
  share.stages = each + (share.rank < more ? 1 : 0);
  return share;
}

// Stream-k: the stages of all tiles, one after another, are dealt out evenly to the blocks of the
// grid. A block goes through its own from the last to the first, so that what it has of a tile whose
// last stage is another block's comes first, and that block, a later one, waits for nothing.
template <class Config>
struct MmaWalk {
  int tile_stages;
  int each, more;     // stages of a block, and how many of the first blocks have one more
  int first, stages;  // of this block

  __device__ __forceinline__ explicit MmaWalk(const MmaCall& call) {
    const int tiles = (call.m + Config::block_m - 1) / Config::block_m *
                      ((call.n + Config::block_n - 1) / Config::block_n);
    tile_stages = (call.k + Config::block_k - 1) / Config::block_k;
    const int blocks = gridDim.x, block = blockIdx.x;
    each = tiles * tile_stages / blocks, more = tiles * tile_stages % blocks;
    first = block * each + min(block, more);
    stages = each + (block < more ? 1 : 0);
  }
  __device__ __forceinline__ int block_of(int stage) const {
    const int long_ones = more * (each + 1);
    return stage < long_ones ? stage / (each + 1) : more + (stage - long_ones) / each;
  }

  // The last tile that `left` stages of this block reach into, and the blocks that have stages of it.
  struct Part {
    MmaShare share;
    int block, first_block;  // this one, and the first that has stages of the tile
    bool ends_tile;
  };
  __device__ __forceinline__ Part last(int left, const MmaCall& call) const {
    Part part;
    const int end = first + left, id = (end - 1) / tile_stages, tile_begin = id * tile_stages;
    const int begin = max(tile_begin, first);
    place_tile<Config>(part.share, id, call);
    part.share.rank = 0;
    part.share.first_stage = begin - tile_begin;
    part.share.stages = end - begin;
    part.block = blockIdx.x;
    part.first_block = begin > tile_begin ? block_of(tile_begin) : part.block;
    part.ends_tile = end == tile_begin + tile_stages;
    return part;
  }
};

// Of the kernel that adds up partial sums: eight neighbouring outputs a thread.
struct MmaEight {
  int row, column;
};

__device__ __forceinline__ MmaEight mma_eight(int n) {
  const int eights = (n + 7) / 8;
  const i64 id = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  return {static_cast<int>(id / eights), static_cast<int>(id % eights) * 8};
}

}  // namespace humming
