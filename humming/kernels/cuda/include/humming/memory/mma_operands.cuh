// A block's ring of operands in shared memory: how a stage comes from global memory, and how a warp
//   reads its fragments.
// Run by fetch, put: every thread of a block, its own chunks; fragments: a whole converged warp.
// Reads -> writes: x [m, k], packed codes and scales -> shared memory -> registers.
// Source: chunks of x are swizzled by the row, so that neither copies nor ldmatrix meet bank
//   conflicts. Before sm_80 a stage is held in registers between fetch and put.
#pragma once
#include "humming/ptx/async.cuh"
#include "humming/ptx/matrix.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/mma.cuh"

namespace humming {

template <class Config>
struct MmaOperands {
  using Plan = MmaPlan<Config>;
  static constexpr int threads = Plan::threads;
  static constexpr int x_each = (Plan::x_chunks + threads - 1) / threads;
  static constexpr int codes_each = (Plan::codes_chunks + threads - 1) / threads;
  static constexpr int scales_each = (Plan::scales_chunks + threads - 1) / threads;
  static constexpr int x_row_chunks = Config::block_k / 8;
  static constexpr int x_row_step = threads / x_row_chunks;  // rows of x between a thread's chunks

  u32 ring;
  const char* x;
  const char* codes;
  const char* scales;
  int k, x_row, x_rows, x_column;
  u32 x_row_bytes;
  int k_tiles, all_groups, row_tile, last_tile;
  int first_stage;
  u32 x_lane, codes_lane, scales_lane;  // of this lane in a stage

#if __CUDA_ARCH__ < 800
  Words4 held_x[x_each], held_codes[codes_each], held_scales[scales_each];
#endif

  __device__ __forceinline__ MmaOperands(const MmaCall& call, const MmaShare& share, u32 shared,
                                         int warp_m, int warp_n, int warp_k, int lane) {
    ring = shared;
    k = call.k;
    x_column = threadIdx.x % x_row_chunks * 8;
    x_row = threadIdx.x / x_row_chunks;
    x_rows = call.m - share.x_row;
    x_row_bytes = static_cast<u32>(call.x_row_stride) * 2;
    x = static_cast<const char*>(call.x) + share.x_row * call.x_row_stride * 2;
    codes = static_cast<const char*>(call.codes);
    scales = static_cast<const char*>(call.scales);
    k_tiles = (call.k + 127) / 128 * 2;
    all_groups = (k_tiles * 64 + Config::group_size - 1) / Config::group_size;
    row_tile = share.row_tile;
    last_tile = share.all_tiles - 1;
    first_stage = share.first_stage;

    const int matrix = lane / 8, line = lane % 8;
    const int row = warp_m * Plan::columns * 8 + matrix / 2 * 8 + line;
    x_lane = warp_k * Plan::warp_k_tiles * Plan::x_tile_bytes + row * Plan::x_line_bytes +
             ((matrix % 2) ^ line) * 16;
    codes_lane = Plan::codes + warp_n * Plan::warp_tiles * Plan::codes_run_bytes +
                 warp_k * Plan::warp_k_tiles * Plan::tile_bytes + lane * 16;
    const int warp_group = warp_k * Plan::warp_k_tiles * 64 / Config::group_size;
    scales_lane = Plan::scales +
                  (warp_n * Plan::warp_tiles * Plan::groups + warp_group) * Plan::group_bytes +
                  lane / 4 * 4;
  }

  __device__ __forceinline__ u32 stage(int slot) const { return ring + slot * Plan::stage_bytes; }

  // -- from global memory --

  // Rows past m are read as the last row: they reach no output. Columns past k are zero.
  __device__ __forceinline__ void put_x(int number, int slot) {
    const int column = (first_stage + number) * Config::block_k + x_column;
    const int bytes = min(max(k - column, 0) * 2, 16);
    const int own = x_column / 64 * Plan::x_tile_bytes, chunk = x_column / 8 % 8;
#pragma unroll
    for (int i = 0; i < x_each; ++i) {
      const int in_block = x_row + i * x_row_step;
      const int row = min(in_block, x_rows - 1);
      const char* source = x + static_cast<u64>(static_cast<u32>(row)) * x_row_bytes + column * 2;
      const u32 target =
          stage(slot) + own + in_block * Plan::x_line_bytes + (chunk ^ (in_block % 8)) * 16;
      if (Plan::x_chunks % threads == 0 || in_block < Config::block_m) {
#if __CUDA_ARCH__ >= 800
        ptx::cp_async_16(target, source, bytes);
#else
        (void)source;
        ptx::store_shared_words4(target, held_x[i]);
#endif
      }
    }
  }

  __device__ __forceinline__ void put_weights(int number, int slot) {
#pragma unroll
    for (int i = 0; i < codes_each; ++i) {
      const int chunk = threadIdx.x + i * threads;
      if (Plan::codes_chunks % threads == 0 || chunk < Plan::codes_chunks) {
        const u32 target = stage(slot) + Plan::codes + chunk * 16;
#if __CUDA_ARCH__ >= 800
        ptx::cp_async_streamed(target, codes_source(number, chunk));
#else
        ptx::store_shared_words4(target, held_codes[i]);
#endif
      }
    }
#pragma unroll
    for (int i = 0; i < scales_each; ++i) {
      const int chunk = threadIdx.x + i * threads;
      if (Plan::scales_chunks % threads == 0 || chunk < Plan::scales_chunks) {
        const u32 target = stage(slot) + Plan::scales + chunk * 16;
#if __CUDA_ARCH__ >= 800
        ptx::cp_async_16(target, scales_source(number, chunk), 16);
#else
        ptx::store_shared_words4(target, held_scales[i]);
#endif
      }
    }
  }

  // Where nothing is copied asynchronously: starts the loads whose words `put` will store.
  __device__ __forceinline__ void fetch(int number) {
#if __CUDA_ARCH__ < 800
    const int column = (first_stage + number) * Config::block_k + x_column;
#pragma unroll
    for (int i = 0; i < x_each; ++i) {
      const int row = min(x_row + i * x_row_step, x_rows - 1);
      held_x[i] =
          part_of_row(x + static_cast<u64>(static_cast<u32>(row)) * x_row_bytes + column * 2,
                      min(max(k - column, 0), 8));
    }
#pragma unroll
    for (int i = 0; i < codes_each; ++i)
      held_codes[i] = ptx::load_global_streamed(
          codes_source(number, (threadIdx.x + i * threads) % Plan::codes_chunks));
#pragma unroll
    for (int i = 0; i < scales_each; ++i)
      held_scales[i] = ptx::load_global_words4(
          scales_source(number, (threadIdx.x + i * threads) % Plan::scales_chunks));
#else
    (void)number;
#endif
  }

  __device__ __forceinline__ void commit() const {
#if __CUDA_ARCH__ >= 800
    ptx::cp_async_commit();
#endif
  }

  // Until all but the last `pending` stages that were put are in shared memory, this thread's part.
  template <int pending>
  __device__ __forceinline__ void wait() const {
#if __CUDA_ARCH__ >= 800
    ptx::cp_async_wait<pending>();
#endif
  }

  // Eight elements of a row, zero from the `count`-th on.
  static __device__ __forceinline__ Words4 part_of_row(const char* source, int count) {
    Words4 v = {};
    if (count == 8) return ptx::load_global_words4(source);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < count)
        v.word[i / 2] |= static_cast<u32>(ptx::load_global_u16(source + i * 2)) << (i % 2 * 16);
    return v;
  }

  // Tiles past n or k are read as the last ones: they reach no output, or meet an x of zero.
  __device__ __forceinline__ const char* codes_source(int number, int chunk) const {
    constexpr int run_chunks = Plan::codes_run_bytes / 16, tile_chunks = Plan::tile_bytes / 16;
    const int tile = min(row_tile + chunk / run_chunks, last_tile);
    const int in_run = chunk % run_chunks;
    const int k_tile =
        min((first_stage + number) * Plan::k_tiles + in_run / tile_chunks, k_tiles - 1);
    return codes + (static_cast<i64>(tile) * k_tiles + k_tile) * Plan::tile_bytes +
           in_run % tile_chunks * 16;
  }

  __device__ __forceinline__ const char* scales_source(int number, int chunk) const {
    constexpr int run_chunks = Plan::groups * 2;
    const int tile = min(row_tile + chunk / run_chunks, last_tile);
    const int first = (first_stage + number) * Config::block_k / Config::group_size;
    const int group = min(first + chunk % run_chunks / 2, all_groups - 1);
    return scales + (static_cast<i64>(tile) * all_groups + group) * Plan::group_bytes +
           chunk % 2 * 16;
  }

  // -- to registers --

  // Two columns of the product, 16 rows of x, for one k step of 16.
  __device__ __forceinline__ void x_fragments(u32 (&low)[2], u32 (&high)[2], u32 stage_base,
                                              int k_tile, int step, int pair) const {
    ptx::ldmatrix_x4(low[0], low[1], high[0], high[1],
                     stage_base + (x_lane ^ (step * 32)) + k_tile * Plan::x_tile_bytes +
                         pair * 16 * Plan::x_line_bytes);
  }

  __device__ __forceinline__ Words4 words(u32 stage_base, int tile, int k_tile) const {
    return ptx::load_shared_words4(stage_base + codes_lane + tile * Plan::codes_run_bytes +
                                   k_tile * Plan::tile_bytes);
  }

  // `group` counts from the warp's first one in the stage.
  __device__ __forceinline__ u32 scale_pair(u32 stage_base, int tile, int group) const {
    return ptx::load_shared_u32(stage_base + scales_lane +
                                (tile * Plan::groups + group) * Plan::group_bytes);
  }
};

}  // namespace humming
