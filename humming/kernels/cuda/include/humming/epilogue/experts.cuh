// Zeros in the rows of experts that are other ranks', where a block's own columns are.
// Run by all threads of a block.
// Reads -> writes: the places of rows -> out [rows, n].
// Source: own.
#pragma once
#include "humming/scheduler/experts.cuh"

namespace humming {

template <class Call>
__device__ __forceinline__ void block_zero_rows(const Call& call, const ExpertTile& tile,
                                                int first_column, int columns, int threads) {
  const int count = min(columns, call.n - first_column);
#pragma unroll 1
  for (int row = 0; row < tile.count; ++row) {
    u16* target =
        static_cast<u16*>(call.out) + out_row_of(call, tile.first + row) * call.out_row_stride;
#pragma unroll 1
    for (int column = threadIdx.x; column < count; column += threads)
      ptx::store_global_u16(target + first_column + column, 0);
  }
}

}  // namespace humming
