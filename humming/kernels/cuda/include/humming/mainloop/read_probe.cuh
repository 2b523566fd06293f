// Reading a buffer once with all threads of the grid, and nothing else.
// Run by all threads of a grid.
// Reads -> writes: a buffer in global memory, 16 bytes a chunk -> one word, which is never written
//   in practice.
// Source: own. Eight loads are in flight a thread; the sum keeps the compiler from dropping them.
#pragma once
#include "humming/epilogue/read_probe.cuh"
#include "humming/scheduler/read_probe.cuh"

namespace humming {

__device__ __forceinline__ void block_read(const void* buffer, i64 chunks, void* sink) {
  constexpr int at_once = 8;
  const ReadShare share = read_share();
  u32 mixed = 0;
  for (i64 first = share.first; first < chunks; first += share.step * at_once) {
    Words4 held[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const i64 chunk = first + i * share.step;
      held[i] = ptx::load_global_streamed(static_cast<const char*>(buffer) +
                                          (chunk < chunks ? chunk : first) * 16);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) mixed ^= held[i].word[j];
  }
  store_if_magic(mixed, sink);
}

}  // namespace humming
