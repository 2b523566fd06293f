// Which row tiles and which groups of k belong to a block and a warp. The only reader of blockIdx.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: own. Groups are dealt out in turn to all warps that share an output tile, so that no warp
//   has two more than another.
#pragma once
#include "humming/ptx/types.cuh"

namespace humming {

// The kernel's arguments; strides in elements.
struct SkinnyCall {
  const void* x;
  const void* codes;
  const void* scales;
  const void* zero_points;  // where the format has them
  const float* row_scales;  // where the format has them: [16 * ceil(n / 16)]
  const int* permutation;   // or null: column j of w goes with column permutation[j] of x
  const float* bias;        // or null
  void* out;
  int m, n, k;
  i64 x_row_stride, out_row_stride;
  // Of experts: rows first_row .. m - 1 of those that are sorted by experts, their places in out (or
  // null), and how many of those share a row of x.
  int first_row = 0;
  const int* rows = nullptr;
  int shared = 1;
};

struct SkinnyShare {
  int rank;       // of this block among the `split_k` blocks of its output tile
  int row_tile;   // first of the block's row tiles (16 rows of w each)
  int row_tiles;  // how many of tiles_n are inside n (at least one is read)
  int row_tile_step;
  int groups;       // units of 128 columns, of the whole k
  int first_group;  // of this warp
  int group_step;
  int units;  // how many groups this warp has
};

// Rows of x that this block multiplies: a pass over the weights has block_m of them, and passes of
// one output tile are neighbours in the grid, so that the second finds the weights in L2.
struct SkinnyRows {
  int first;
  int count;
};

template <class Config>
__device__ __forceinline__ SkinnyRows skinny_rows(const SkinnyCall& call) {
  SkinnyRows rows;
  rows.first = Config::grouped ? call.first_row : blockIdx.x * Config::block_m;
  rows.count = min(Config::block_m, call.m - rows.first);
  return rows;
}

// The tile of experts' rows that is this block's.
__device__ __forceinline__ int skinny_tile() { return blockIdx.x; }

template <class Config>
__device__ __forceinline__ SkinnyShare skinny_share(int n, int k, int warp) {
  SkinnyShare share;
  int block = blockIdx.y;
  share.rank = block % Config::split_k;
  share.row_tile = block / Config::split_k * Config::tiles_n;
  share.row_tiles = min(Config::tiles_n, (n + 15) / 16 - share.row_tile);
  share.row_tile_step = 1;
  share.groups = (k + 127) / 128;
  share.first_group = share.rank * Config::warps + warp;
  share.group_step = Config::split_k * Config::warps;
  share.units = share.first_group < share.groups
                    ? (share.groups - share.first_group + share.group_step - 1) / share.group_step
                    : 0;
  return share;
}

// The same for warpgroups: warp w of a group has every fourth row tile, and the groups share k.
template <class Config>
__device__ __forceinline__ SkinnyShare warpgroup_share(int n, int k, int way, int warp) {
  SkinnyShare share;
  int block = blockIdx.y, all = (n + 15) / 16, ways = Config::warps / 4;
  share.rank = block % Config::split_k;
  share.row_tile = min(block / Config::split_k * Config::tiles_n * 4 + warp, all - 1);
  share.row_tiles = min(Config::tiles_n, (all - share.row_tile + 3) / 4);
  share.row_tile_step = 4;
  share.groups = (k + 127) / 128;
  share.first_group = share.rank * ways + way;
  share.group_step = Config::split_k * ways;
  share.units = share.first_group < share.groups
                    ? (share.groups - share.first_group + share.group_step - 1) / share.group_step
                    : 0;
  return share;
}

template <class Config>
__device__ __forceinline__ int block_first_row() {
  return static_cast<int>(blockIdx.y) / Config::split_k * Config::template Plan<Config>::block_rows;
}

}  // namespace humming
