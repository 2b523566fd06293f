// Which output tiles, and which units of k of them, belong to a block. The only reader of blockIdx
//   of the wgmma family.
// Run by every thread.
// Reads -> writes: the grid's coordinates -> registers.
// Source: stream-k, Osama et al., arXiv:2301.03598. The tiles that fill no whole wave are cut into
//   equal runs of units, one a block or cluster; those that share a tile are neighbours.
#pragma once
#include "humming/memory/wgmma_plan.cuh"
#include "humming/ptx/types.cuh"

namespace humming {

// The kernel's arguments; strides in elements.
struct WgmmaCall {
  const void* scales;
  const float* bias;  // or null
  void* out;
  float* partials;  // of blocks that share a tile's k
  u32* counters;    // zero, and zero again at the end; one a streamed tile and warpgroup
  int m, n, k;
  int whole_tiles;  // that one block, or cluster, each computes; the rest are cut into runs
  int runs;         // one each for the first blocks or clusters; none is empty
  i64 out_row_stride;
};

// A run of units of one output tile. The blocks of a cluster have neighbouring tiles of the same run.
struct WgmmaWork {
  int tile_m, tile_n;
  int first, units;  // of k
  int sharers;       // runs that share the tile
  int rank;          // of this run among them
  int streamed;      // which of the streamed tiles, or clusters' tiles, it is
};

template <class Config>
struct WgmmaSchedule {
  using Plan = WgmmaPlan<Config>;

  int tiles_m, tiles_n, units, whole, streamed, runs;  // tiles: those of a cluster count as one
  int cluster, clusters, rank;
  int at, end;  // of this block's run, in units of the streamed tiles
  int next_whole;

  __device__ __forceinline__ explicit WgmmaSchedule(const WgmmaCall& call)
      : tiles_m((call.m + Config::block_m - 1) / Config::block_m),
        tiles_n((call.n + Plan::block_rows * Config::cluster_n - 1) /
                (Plan::block_rows * Config::cluster_n)),
        units((call.k + Plan::unit_k - 1) / Plan::unit_k),
        whole(call.whole_tiles),
        streamed(tiles_m * tiles_n - whole),
        runs(call.runs),
        cluster(blockIdx.y / Config::cluster_n),
        clusters(gridDim.y / Config::cluster_n),
        rank(blockIdx.y % Config::cluster_n),
        at(begin(cluster)),
        end(begin(cluster + 1)),
        next_whole(cluster) {}

  __device__ __forceinline__ bool next(WgmmaWork& work) {
    int tile;
    if (at < end) {
      work.streamed = at / units;
      tile = whole + work.streamed;
      work.first = at - work.streamed * units;
      work.units = min(units - work.first, end - at);
      const int first_unit = work.streamed * units, first = owner(first_unit);
      work.sharers = owner(first_unit + units - 1) - first + 1;
      work.rank = cluster - first;
      at += work.units;
    } else if (next_whole < whole) {
      tile = next_whole;
      next_whole += clusters;
      work.first = 0;
      work.units = units;
      work.sharers = 1;
      work.rank = 0;
      work.streamed = 0;
    } else {
      return false;
    }
    place(tile, work);
    return true;
  }

  // Where the partial sums of the sharer `which` of a tile lie: of the first or second run of a
  // cluster, this block's tile.
  __device__ __forceinline__ int slot(const WgmmaWork& work, int which) const {
    const int first_unit = work.streamed * units, sharer = owner(first_unit) + which;
    return (2 * sharer + (begin(sharer) < first_unit ? 1 : 0)) * Config::cluster_n + rank;
  }
  // The tile among all streamed ones.
  __device__ __forceinline__ int streamed_tile(const WgmmaWork& work) const {
    return work.streamed * Config::cluster_n + rank;
  }

 private:
  // Fewer than blocks times units: products with blocks have 32 bits.
  __device__ __forceinline__ u32 all() const { return static_cast<u32>(streamed) * units; }
  __device__ __forceinline__ int begin(int run) const {
    return runs == 0 ? 0 : all() * min(run, runs) / runs;
  }
  // The run that has unit `unit`; none is empty.
  __device__ __forceinline__ int owner(int unit) const {
    return ((unit + 1u) * runs + all() - 1) / all() - 1;
  }
  // Tiles go through a few blocks of rows of x at a time, so that L2 holds what a wave reads.
  __device__ __forceinline__ void place(int tile, WgmmaWork& work) const {
    const int group = Config::raster_group_m * tiles_n,
              first_m = tile / group * Config::raster_group_m;
    const int high = min(Config::raster_group_m, tiles_m - first_m), in_group = tile % group;
    work.tile_m = first_m + in_group % high;
    work.tile_n = in_group / high * Config::cluster_n + rank;
  }
};

}  // namespace humming
