// The store of dequantized weights: the only global stores of the family.
// Run by a whole converged warp.
// Reads -> writes: one tile in shared memory -> w [n, k], 16 bits, row-major, rows of 16 whole
//   bytes.
// Source: own. Eight lanes write one row's 128 bytes, so that every sector is written whole.
#pragma once
#include "humming/memory/dequantized_tile.cuh"

namespace humming {

__device__ __forceinline__ void warp_store_tile(const DequantizedTile& tile, int row_tile,
                                                int k_tile, int lane, void* w, int n, int k) {
  constexpr int rows_at_once = 32 / DequantizedTile::chunks;
  const int chunk = lane % DequantizedTile::chunks;
  const int column = k_tile * DequantizedTile::columns + chunk * 8;
#pragma unroll
  for (int r = 0; r < DequantizedTile::rows; r += rows_at_once) {
    const int row_in_tile = r + lane / DequantizedTile::chunks;
    const int row = row_tile * DequantizedTile::rows + row_in_tile;
    if (row < n && column < k) {
      char* target = static_cast<char*>(w) + (static_cast<i64>(row) * k + column) * 2;
      ptx::store_global_words4(target, tile.chunk(row_in_tile, chunk));
    }
  }
}

}  // namespace humming
