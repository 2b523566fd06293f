// Which tiles of experts' rows, and which rows of w, a block takes one after another that goes through
//   many.
// Run by a whole converged warp; each warp of a block goes the same way.
// Reads -> writes: the grid's coordinates, tiles and places of rows in global memory -> registers.
// Source: own. Tiles of one expert's w follow each other, so blocks that run at the same time read
//   neighbouring memory; what is to be known of the next tile is asked for one tile ahead.
#pragma once
#include "humming/memory/skinny_plan.cuh"
#include "humming/ptx/sync.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

// The config of a block that goes through tiles: each says where its rows lie.
template <class Config>
struct Walking : Config {
  static constexpr int grouped = 0;
};

// A tile, and its first row tile of w.
struct WalkTile {
  ExpertTile of;
  int row_tile;
  int place;  // of row `lane` of the tile, in out
};

// The first tile of this block as the list has it by now, though the kernel that writes the list may
// still run: good for a guess, as most lists are older than that. Its expert alone, which may be none.
template <class Config>
__device__ __forceinline__ WalkTile guessed_tile(const SkinnyCall& call,
                                                 const ExpertsCall& experts) {
  const int blocks_n = (call.n + 16 * Config::tiles_n - 1) / (16 * Config::tiles_n);
  const int block = blockIdx.x, m = block / blocks_n;
  WalkTile tile = {};
  tile.of.expert = static_cast<int>(ptx::load_global_acquire(
      reinterpret_cast<const u32*>(experts.tiles) + static_cast<i64>(m) * 4));
  tile.row_tile = (block - m * blocks_n) * Config::tiles_n;
  return tile;
}

template <class Config>
struct SkinnyWalk {
  const SkinnyCall& call;
  const ExpertsCall& experts;
  int lane, blocks_n;  // blocks_n: tiles along n
  int step_m, step_n;  // from one tile of this block to its next
  int next_m, next_n;
  ExpertTile next_tile;
  int next_place;

  __device__ __forceinline__ SkinnyWalk(const SkinnyCall& call_, const ExpertsCall& experts_,
                                        int lane_)
      : call(call_),
        experts(experts_),
        lane(lane_),
        blocks_n((call_.n + 16 * Config::tiles_n - 1) / (16 * Config::tiles_n)) {
    const int blocks = gridDim.x, block = blockIdx.x;
    step_m = blocks / blocks_n, step_n = blocks - step_m * blocks_n;
    next_m = block / blocks_n, next_n = block - next_m * blocks_n;
  }

  // The grid has no more blocks than the list has room for, so the first tile may be read as it is.
  __device__ __forceinline__ void begin() { expect(); }

  // False where no tile is left, of this rank or of others.
  __device__ __forceinline__ bool next(WalkTile& tile) {
    if (next_m >= next_tile.all) return false;
    tile.of = next_tile;
    tile.row_tile = next_n * Config::tiles_n;
    tile.place = call.rows != nullptr ? next_place : next_tile.first + lane;
    next_m += step_m, next_n += step_n;
    if (next_n >= blocks_n) next_n -= blocks_n, ++next_m;
    if (next_m < next_tile.all) expect();
    return true;
  }

 private:
  __device__ __forceinline__ void expect() {
    next_tile = expert_tile(experts, next_m);
    if (call.rows != nullptr)
      next_place = static_cast<int>(ptx::load_global_word(
          call.rows + static_cast<i64>(next_m) * Config::block_m + lane % Config::block_m));
  }
};

}  // namespace humming
