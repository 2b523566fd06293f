// Which output tiles, and which units of k of them, belong to a block. The only reader of blockIdx
//   of the wgmma family.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: own, after stream-k, Osama et al., arXiv:2301.03598. The tiles that fill no whole wave are
//   cut into equal runs of units, one a block or cluster, as many each; neighbours share a tile.
#pragma once
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/tensor.cuh"
#include "humming/ptx/types.cuh"

namespace humming {

// The kernel's arguments; strides in elements.
struct WgmmaCall {
  const void* scales;
  const void* zero_points;  // or null, as the format has them
  const float* row_scales;
  const float* bias;  // or null
  void* out;
  float* partials;  // of blocks that share a tile's k
  u32* counters;    // zero, and zero again at the end; one a streamed tile and warpgroup
  int m, n, k;
  int whole_tiles;  // that one block, or cluster, each computes; the rest are cut into runs
  int runs;         // one each for the first blocks or clusters, as many a tile
  i64 out_row_stride;
  // Of experts: rows first_row .. m - 1 of those that are sorted by experts, and their places in out
  // (or null).
  int first_row = 0;
  const int* rows = nullptr;
  int shared = 1;
  const TensorMap* out_map = nullptr;  // of out, where the copy engine may write it
};

// A run of units of one output tile. The blocks of a cluster have neighbouring tiles of the same run,
// or, with split_k, runs of the same tile.
struct WgmmaWork {
  int tile_m, tile_n;
  int first, units;  // of k
  int sharers;       // runs that share the tile
  int rank;          // of this run among them, or of the block among those that share k
  int streamed;      // which of the streamed tiles, or clusters' tiles, it is
};

// `Plan_` is the family's own: rows of a block, and columns of a unit.
template <class Config, class Plan_ = WgmmaPlan<Config>>
struct WgmmaSchedule {
  using Plan = Plan_;

  int tiles_m, tiles_n, units, whole, shares;  // tiles: those of a cluster count as one
  int cluster, clusters, rank;                 // rank: along n
  int next_whole;
  bool has_run;

  __device__ __forceinline__ explicit WgmmaSchedule(const WgmmaCall& call)
      : tiles_m((call.m + Config::block_m - 1) / Config::block_m),
        tiles_n((call.n + Plan::block_rows * Config::cluster_n - 1) /
                (Plan::block_rows * Config::cluster_n)),
        units((call.k + Plan::unit_k - 1) / Plan::unit_k),
        whole(call.whole_tiles),
        shares(1),
        cluster(blockIdx.y / Plan::cluster),
        clusters(gridDim.y / Plan::cluster),
        rank(blockIdx.y % Config::cluster_n),
        next_whole(cluster),
        has_run(cluster < call.runs) {
    if (has_run) shares = static_cast<u32>(call.runs) / (tiles_m * tiles_n - whole);
  }

  // Of this block among those of its cluster that share k.
  __device__ __forceinline__ int rank_along_k() const { return blockIdx.y % Config::split_k; }

  __device__ __forceinline__ bool next(WgmmaWork& work) {
    int tile = next_whole;
    work.streamed = 0;
    work.first = 0;
    work.units = units;
    work.sharers = 1;
    work.rank = 0;
    if (has_run) {
      has_run = false;
      work.streamed = static_cast<u32>(cluster) / shares;
      tile = whole + work.streamed;
      work.sharers = shares;
      work.rank = cluster - work.streamed * shares;
      work.first = static_cast<u32>(units * work.rank) / shares;
      work.units = static_cast<u32>(units * (work.rank + 1)) / shares - work.first;
    } else if (next_whole < whole) {
      next_whole += clusters;
      if constexpr (Config::split_k > 1) {
        work.rank = rank_along_k();
        work.first = static_cast<u32>(units * work.rank) / Config::split_k;
        work.units = static_cast<u32>(units * (work.rank + 1)) / Config::split_k - work.first;
      }
    } else {
      return false;
    }
    place(tile, work);
    return true;
  }

  // Where the partial sums of the sharer `which` of a tile lie: this block's part of them.
  __device__ __forceinline__ int slot(const WgmmaWork& work, int which) const {
    return (work.streamed * shares + which) * Config::cluster_n + rank;
  }
  // The tile among all streamed ones.
  __device__ __forceinline__ int streamed_tile(const WgmmaWork& work) const {
    return work.streamed * Config::cluster_n + rank;
  }

 private:
  // Tiles go through a few blocks of rows of x at a time, so that L2 holds what a wave reads.
  __device__ __forceinline__ void place(int tile, WgmmaWork& work) const {
    const u32 group = Config::raster_group_m * tiles_n;
    const int first_m = static_cast<u32>(tile) / group * Config::raster_group_m;
    const int high = min(Config::raster_group_m, tiles_m - first_m);
    const u32 in_group = static_cast<u32>(tile) % group, column = in_group / high;
    work.tile_m = first_m + in_group - column * high;
    work.tile_n = column * Config::cluster_n + rank;
  }
};

}  // namespace humming
