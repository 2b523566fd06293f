// Rows of x that lie anywhere, brought 128 bytes of each at a time by the threads of a warpgroup into
//   the swizzled panels that the copy engine would write.
// Run by a warpgroup, one thread each.
// Reads -> writes: places of rows, x in global memory -> shared memory.
// Source: own. Eight threads a row, 16 rows at a time.
#pragma once
#include "humming/ptx/async.cuh"
#include "humming/scheduler/experts.cuh"

namespace humming {

template <class Config>
struct GatheredRows {
  static constexpr int each = Config::block_m / 16;
  u32 sixteens[each];  // where they begin in x, in 16 bytes
  int left;            // of this thread's first row on

  template <class Call>
  __device__ __forceinline__ GatheredRows(const Call& call, i64 row_sixteens, int thread)
      : left(call.m - call.first_row - thread / 8) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int row = min(call.first_row + thread / 8 + 16 * i, call.m - 1);
      sixteens[i] = static_cast<u32>(x_row_of(call, row) * row_sixteens);
    }
  }

  // Where a thread's first chunk of a panel lies in it.
  static __device__ __forceinline__ u32 target(int thread) {
    return thread / 8 * 128 + (thread % 8 ^ thread / 8 % 8) * 16;
  }
  // `column`: this thread's 16 bytes of the first row of x, of which `bytes` are there.
  __device__ __forceinline__ void copy(u32 panel, const char* column, u32 bytes) const {
#pragma unroll
    for (int i = 0; i < each; ++i)
      if (16 * i < left)
        ptx::cp_async_16(panel + i * 2048,
                         bytes ? column + static_cast<u64>(sixteens[i]) * 16 : column, bytes);
  }
};

}  // namespace humming
