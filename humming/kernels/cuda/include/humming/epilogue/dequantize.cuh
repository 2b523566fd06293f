// The store of dequantized weights: the only global stores of the family.
// Run by a whole converged warp.
// Reads -> writes: one tile in shared memory -> w [n, pitch], 16 bits, row-major, rows of whole
//   16 bytes.
// Source: own. Eight lanes write one row's 128 bytes, so that every sector is written whole.
#pragma once
#include "humming/memory/dequantized_tile.cuh"
#include "humming/scheduler/dequantize.cuh"

namespace humming {

__device__ __forceinline__ void warp_store_tile(const DequantizedTile& tile, int row_tile,
                                                int k_tile, int lane, const DequantizeCall& call) {
  constexpr int rows_at_once = 32 / DequantizedTile::chunks;
  const int chunk = lane % DequantizedTile::chunks;
  const int column = k_tile * DequantizedTile::columns + chunk * 8;
#pragma unroll
  for (int r = 0; r < DequantizedTile::rows; r += rows_at_once) {
    const int row_in_tile = r + lane / DequantizedTile::chunks;
    const int row = row_tile * DequantizedTile::rows + row_in_tile;
    if (row < call.n && column < call.pitch) {
      char* target = static_cast<char*>(call.w) + (static_cast<i64>(row) * call.pitch + column) * 2;
      ptx::store_global_words4(target, tile.chunk(row_in_tile, chunk));
    }
  }
}

}  // namespace humming
