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
  float* partials;  // [split_k][m][n rounded up to 8] where k is split through memory
  int m, n, k;
  i64 x_row_stride, out_row_stride;
};

struct MmaShare {
  int row_tile;     // the block's first row tile (16 rows of w)
  int all_tiles;    // row tiles of the whole w
  int x_row;        // the block's first row of x
  int rank;         // of this block among the split_k blocks of its output tile
  int first_stage;  // of block_k columns
  int stages;       // how many this block multiplies; may be none
};

template <class Config>
__device__ __forceinline__ MmaShare mma_share(const MmaCall& call) {
  const int tiles_m = (call.m + Config::block_m - 1) / Config::block_m;
  const int tiles_n = (call.n + Config::block_n - 1) / Config::block_n;
  const int rows = min(Config::raster_group_m, tiles_m), band = rows * tiles_n;
  const int id = blockIdx.x, first_m = id / band * rows, in_band = id % band;
  const int height = min(tiles_m - first_m, rows);

  MmaShare share;
  share.x_row = (first_m + in_band % height) * Config::block_m;
  share.row_tile = in_band / height * (Config::block_n / 16);
  share.all_tiles = (call.n + 15) / 16;
  share.rank = blockIdx.y;
  const int all = (call.k + Config::block_k - 1) / Config::block_k;
  const int each = all / Config::split_k, more = all % Config::split_k;
  share.first_stage = share.rank * each + min(share.rank, more);
  share.stages = each + (share.rank < more ? 1 : 0);
  return share;
}

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
