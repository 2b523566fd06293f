// One warp's tile of 16 rows by 64 columns, 16 bits each, on its way from fragments to rows.
// Run by a whole converged warp; no other warp sees the tile.
// Reads -> writes: A fragments of m16n8k16 -> shared memory [16][64] -> 16 contiguous bytes of a
//   row.
// Source: own. Rows are padded by 16 bytes, so that neither side meets a bank twice.
#pragma once
#include "humming/ptx/move.cuh"

namespace humming {

struct DequantizedTile {
  static constexpr int rows = 16, columns = 64, row_bytes = columns * 2 + 16;
  static constexpr int bytes = rows * row_bytes;
  static constexpr int chunks = columns / 8;  // of 16 bytes, in a row

  u32 shared;

  // The fragment of k step `step`: register i holds row g + 8 * (i % 2), columns 2t and 2t + 1
  // after 16 * step + 8 * (i / 2).
  __device__ __forceinline__ void put(const u32 (&a)[4], int step, int lane) const {
    const u32 base = shared + lane / 4 * row_bytes + step * 32 + lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ptx::store_shared_u32(base + i % 2 * 8 * row_bytes + i / 2 * 16, a[i]);
  }
  __device__ __forceinline__ Words4 chunk(int row, int chunk) const {
    return ptx::load_shared_words4(shared + row * row_bytes + chunk * 16);
  }
};

}  // namespace humming
