// Which expert and which of its rows belong to a block: a list of tiles that a kernel before has
//   written. Dense schedulers place the tile's columns.
// Run by every thread.
// Reads -> writes: tiles in global memory -> registers.
// Source: own. A tile is 16 bytes, so a block knows its work after one load; lists have room for the
//   most tiles that there can be, and those that are not there have no rows.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming {

// What a grouped kernel is given beside a dense one's arguments.
struct ExpertsCall {
  const void* tiles;  // [most][4] int: expert (-1: none here), first row, rows, tiles in all
  const int* rows;    // or null: [most][block_m], the place of each row of a tile in out
  int shared;         // rows of out that follow each other and share a row of x
  i64 codes_bytes, scales_bytes;  // from one expert to the next
};

struct ExpertTile {
  int expert, first, count;
  int all;    // tiles that have rows, of the whole list
  int index;  // of this one
};

__device__ __forceinline__ ExpertTile expert_tile(const ExpertsCall& call, int index) {
  const Words4 v =
      ptx::load_global_words4(static_cast<const char*>(call.tiles) + static_cast<i64>(index) * 16);
  return {static_cast<int>(v.word[0]), static_cast<int>(v.word[1]), static_cast<int>(v.word[2]),
          static_cast<int>(v.word[3]), index};
}

// Places of a tile's rows, to be asked for by numbers of sorted rows.
template <class Config>
__device__ __forceinline__ const int* rows_of_tile(const ExpertsCall& call,
                                                   const ExpertTile& tile) {
  if (call.rows == nullptr) return nullptr;
  return call.rows + (static_cast<i64>(tile.index) * Config::block_m - tile.first);
}

// Has those places on their way before anything is known of the tile.
template <class Config>
__device__ __forceinline__ void expect_rows(const ExpertsCall& call, int index) {
  if (call.rows != nullptr)
    ptx::load_global_word(call.rows + static_cast<i64>(index) * Config::block_m +
                          threadIdx.x % Config::block_m);
}

// The rows of a tile, and its expert's scales and bias, in place of all experts'.
template <class Config, class Call>
__device__ __forceinline__ void take_rows(Call& call, const ExpertsCall& experts,
                                          const ExpertTile& tile) {
  const i64 e = tile.expert, row_tiles = (call.n + 15) / 16;
  call.scales = static_cast<const char*>(call.scales) + e * experts.scales_bytes;
  if (call.zero_points != nullptr)
    call.zero_points = static_cast<const char*>(call.zero_points) + e * experts.scales_bytes;
  if (call.row_scales != nullptr) call.row_scales += e * row_tiles * 16;
  if (call.bias != nullptr) call.bias += e * call.n;
  call.first_row = tile.first;
  call.m = tile.first + tile.count;
  call.rows = rows_of_tile<Config>(experts, tile);
  call.shared = experts.shared;
}

// The same, and its expert's codes.
template <class Config, class Call>
__device__ __forceinline__ void take_expert(Call& call, const ExpertsCall& experts,
                                            const ExpertTile& tile) {
  call.codes = static_cast<const char*>(call.codes) + tile.expert * experts.codes_bytes;
  take_rows<Config>(call, experts, tile);
}

// Where a sorted row lies in out, and in x.
template <class Call>
__device__ __forceinline__ i64 out_row_of(const Call& call, int row) {
  return call.rows != nullptr ? static_cast<int>(ptx::load_global_word(call.rows + row)) : row;
}
template <class Call>
__device__ __forceinline__ i64 x_row_of(const Call& call, int row) {
  return out_row_of(call, row) / call.shared;
}

}  // namespace humming
