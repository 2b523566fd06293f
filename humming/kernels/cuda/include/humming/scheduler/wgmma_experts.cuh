// Which tiles of experts' rows, and which rows of w, a wgmma block takes one after another.
// Run by every thread.
// Reads -> writes: the grid's coordinates, tiles in global memory -> registers.
// Source: as scheduler/wgmma.cuh: a few tiles at a time go through all of n, so that L2 holds what a
//   wave reads; how many there are is known on the device alone.
#pragma once
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/wgmma.cuh"

namespace humming {

// `Plan_` is the family's own.
template <class Config, class Plan_ = WgmmaPlan<Config>>
struct WgmmaExpertsWalk {
  using Plan = Plan_;
  const ExpertsCall& experts;
  int tiles_m, tiles_n, units, next_id;
  int next_m, next_n;    // of the tile of that id
  ExpertTile next_tile;  // is on its way while the one before is multiplied

  __device__ __forceinline__ WgmmaExpertsWalk(const WgmmaCall& call, const ExpertsCall& experts_)
      : experts(experts_),
        tiles_m(expert_tile(experts_, 0).all),
        tiles_n((call.n + Plan::block_rows - 1) / Plan::block_rows),
        units((call.k + Plan::unit_k - 1) / Plan::unit_k),
        next_id(blockIdx.y) {
    expect();
  }

  __device__ __forceinline__ bool has_next() const { return next_id < tiles_m * tiles_n; }

  __device__ __forceinline__ bool next(WgmmaWork& work, ExpertTile& tile) {
    if (!has_next()) return false;
    work = {next_m, next_n, 0, units, 1, 0, 0};
    tile = next_tile;
    next_id += gridDim.y;
    expect();
    return true;
  }

 private:
  __device__ __forceinline__ void expect() {
    if (!has_next()) return;
    const u32 group = Config::raster_group_m * tiles_n;
    const int first_m = static_cast<u32>(next_id) / group * Config::raster_group_m;
    const int high = min(Config::raster_group_m, tiles_m - first_m);
    const u32 in_group = static_cast<u32>(next_id) % group, column = in_group / high;
    next_m = first_m + in_group - column * high;
    next_n = column;
    next_tile = expert_tile(experts, next_m);
  }
};

}  // namespace humming
