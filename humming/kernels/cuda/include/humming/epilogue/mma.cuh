// Bias, rounding and the store of an output tile of the mma family: its only global stores.
// Run by all threads of a block, and of its cluster where k is split.
// Reads -> writes: fp32 tiles in shared memory (or partial sums in global memory), scales of rows, bias ->
//   out [m, n], eight neighbouring n a thread.
// Source: own. Blocks that share an output tile's k give the sum in the order of their shares of k.
#pragma once
#include "humming/memory/mma_tile.cuh"
#include "humming/ptx/sync.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/mma.cuh"

namespace humming {

template <class Config>
__device__ __forceinline__ void store_eight(float (&v)[8], int row, int column,
                                            const MmaCall& call) {
  const i64 out_row = Config::grouped ? out_row_of(call, row) : row;
  u16* target = static_cast<u16*>(call.out) + out_row * call.out_row_stride + column;
  const int count = min(8, call.n - column);
  if constexpr (MmaPlan<Config>::x_row_scaled) {
    const i64 x_row = Config::grouped ? x_row_of(call, row) : row;
    const float of_row = ptx::load_global_f32(call.x_row_scales + x_row);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= of_row;
  }
  if constexpr (Config::has_row_scales) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < count) v[i] *= ptx::load_global_f32(call.row_scales + column + i);
  }
  if (call.bias != nullptr) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < count) v[i] += ptx::load_global_f32(call.bias + column + i);
  }
  Words4 packed;
#pragma unroll
  for (int i = 0; i < 4; ++i) packed.word[i] = Config::Activation::pack(v[2 * i], v[2 * i + 1]);
  if (count == 8 && (reinterpret_cast<u64>(target) & 15) == 0) {
    ptx::store_global_words4(target, packed);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i < count)
      ptx::store_global_u16(target + i, static_cast<u16>(packed.word[i / 2] >> (i % 2 * 16)));
}

// Partial sums of all shares of k lie one after another: [split_k][m][n rounded up to 8].
__device__ __forceinline__ i64 mma_partial(int rank, int row, int column, const MmaCall& call) {
  const i64 pitch = (call.n + 7) / 8 * 8;
  return (static_cast<i64>(rank) * call.m + row) * pitch + column;
}

template <class Config>
__device__ __forceinline__ void block_finish(const MmaTile<Config>& tile, const MmaCall& call,
                                             const MmaShare& share, int thread) {
  constexpr int row_eights = Config::block_n / 8, eights = Config::block_m * row_eights;
  const int first_column = share.row_tile * 16;
  int first = 0, step = 1;
  if constexpr (Config::split_k > 1 && Config::cluster != 0) {
#if __CUDA_ARCH__ >= 900
    ptx::cluster_arrive();
    ptx::cluster_wait();
    first = share.rank, step = Config::split_k;
#endif
  } else {
    __syncthreads();
  }
  for (int id = first * MmaPlan<Config>::threads + thread; id < eights;
       id += step * MmaPlan<Config>::threads) {
    const int in_block = id / row_eights, in_row = id % row_eights * 8;
    const int row = share.x_row + in_block, column = first_column + in_row;
    if (row >= call.m || column >= call.n) continue;
    float v[8];
    if constexpr (Config::split_k > 1 && Config::cluster != 0) {
#if __CUDA_ARCH__ >= 900
      tile.cluster_eight(v, in_block, in_row);
#endif
    } else {
      tile.eight(v, in_block, in_row);
    }
    if constexpr (Config::split_k > 1 && Config::cluster == 0) {
      float* target = call.partials + mma_partial(share.rank, row, column, call);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Words4 words;
#pragma unroll
        for (int i = 0; i < 4; ++i) words.word[i] = __float_as_uint(v[half * 4 + i]);
        ptx::store_global_words4(target + half * 4, words);
      }
    } else {
      store_eight<Config>(v, row, column, call);
    }
  }
  if constexpr (Config::split_k > 1 && Config::cluster != 0) {
#if __CUDA_ARCH__ >= 900
    ptx::cluster_arrive();  // others may still read this block's tile
    ptx::cluster_wait();
#endif
  }
}

// Stream-k: the sums of a tile that another block ends, each thread's as it holds them.
template <class Config>
__device__ __forceinline__ float* mma_left(int block, int thread, const MmaCall& call) {
  return call.partials + static_cast<i64>(block) * (Config::block_m * Config::block_n) + thread * 4;
}

template <class Config>
__device__ __forceinline__ void block_leave(const typename MmaTile<Config>::Part& own, int block,
                                            int thread, const MmaCall& call) {
  float* target = mma_left<Config>(block, thread, call);
#pragma unroll
  for (int i = 0; i < MmaPlan<Config>::part_fragments; ++i)
    ptx::store_global_words4(target + i * MmaPlan<Config>::threads * 4,
                             MmaTile<Config>::words_of(own[i]));
  __syncthreads();
  if (thread == 0) ptx::add_global(call.arrived + block, 1);
}

template <class Config>
__device__ __forceinline__ void block_collect(typename MmaTile<Config>::Part& own, int first_block,
                                              int block, int thread, const MmaCall& call) {
#pragma unroll 1
  for (int other = first_block; other < block; ++other) {
    if (thread == 0) {
      while (ptx::load_global_acquire(call.arrived + other) == 0) {
      }
      ptx::add_global(call.arrived + other, ~0u);  // zero again, for the next launch
    }
    __syncthreads();
    const float* source = mma_left<Config>(other, thread, call);
#pragma unroll
    for (int i = 0; i < MmaPlan<Config>::part_fragments; ++i)
      MmaTile<Config>::add_words(
          own[i], ptx::load_global_words4(source + i * MmaPlan<Config>::threads * 4));
  }
}

// The second kernel, where k is split through memory.
template <class Config>
__device__ __forceinline__ void block_add_partials(const MmaCall& call) {
  const MmaEight at = mma_eight(call.n);
  if (at.row >= call.m) return;
  float v[8] = {};
#pragma unroll
  for (int rank = 0; rank < Config::split_k; ++rank)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Words4 words = ptx::load_global_words4(
          call.partials + mma_partial(rank, at.row, at.column, call) + half * 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[half * 4 + i] += __uint_as_float(words.word[i]);
    }
  store_eight<Config>(v, at.row, at.column, call);
}

}  // namespace humming
