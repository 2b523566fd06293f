// A block's ring of operands in shared memory: how a stage comes from global memory, and how a warp
//   reads its fragments.
// Run by fetch, put: every thread of a block, its own chunks; fragments: a whole converged warp.
// Reads -> writes: x [m, k], packed codes, scales and zero points -> shared memory -> registers.
// Source: chunks of x are swizzled by the row, so that neither copies nor ldmatrix meet bank
//   conflicts. What lies past m or n is not copied: it reaches no output. What lies past k is
//   zero, but for scales, which are read twice. Before sm_80 a stage is held in registers between
//   fetch and put.
#pragma once
#include "humming/memory/code_words.cuh"
#include "humming/ptx/async.cuh"
#include "humming/ptx/matrix.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/experts.cuh"
#include "humming/scheduler/mma.cuh"

namespace humming {

// `Kind` is void where x has 16 bits; mma_bytes_operands.cuh is for codes.
template <class Config, class Kind = void>
struct MmaOperands {
  using Plan = MmaPlan<Config>;
  static constexpr int threads = Plan::threads;
  static constexpr int x_each = (Plan::x_chunks + threads - 1) / threads;
  static constexpr int x_row_chunks = Config::block_k / 8;
  static constexpr int x_row_step = threads / x_row_chunks;  // rows of x between a thread's chunks
  static constexpr int run_chunks = Plan::codes_run_bytes / 16;
  static constexpr int codes_each = (Plan::codes_chunks + threads - 1) / threads;
  static constexpr int group_run_chunks = Plan::grouped ? Plan::groups * 2 : 1;
  static constexpr int groups_each = (Plan::group_chunks + threads - 1) / threads;
  static constexpr bool k_padded = Config::block_k <= 128;  // no stage ends beyond the packed k

  u32 ring;
  const char* x;  // of this thread's first chunk in stage `next`, and so are the others
  const char* codes;
  const char* scales;
  const char* zeros;
  i64 row_bytes[Config::grouped ? x_each : 1];  // where this thread's rows begin, of experts
  i64 x_step_bytes, codes_row_bytes, scales_row_bytes;
  int x_rows_left, x_columns_left;       // from this thread's first chunk on
  int tiles_left;                        // row tiles from the block's first one on
  int k_tiles_left, all_groups, column;  // from stage `next` on
  u32 x_target;
  u32 x_lane, codes_lane, scales_lane;  // of this lane in a stage
  int thread;
  u32 lane;

#if __CUDA_ARCH__ >= 800
  static constexpr bool asynchronous = true;
#else
  static constexpr bool asynchronous = false;
  Words4 held_x[x_each], held_codes[codes_each];
  Words4 held_groups[groups_each + 1];
#endif

  __device__ __forceinline__ MmaOperands(const MmaCall& call, const MmaShare& share, u32 shared,
                                         int warp_m, int warp_n, int warp_k, int thread_)
      : thread(thread_), lane(thread_ % 32) {
    const int k_tiles = (call.k + 127) / 128 * 2;
    const int groups = k_tiles * 64 / Plan::group_size;  // as many as are packed
    ring = shared;
    column = share.first_stage * Config::block_k;

    const int x_column = thread % x_row_chunks * 8, x_row = thread / x_row_chunks;
    x = static_cast<const char*>(call.x) + (column + x_column) * 2;
    if constexpr (Config::grouped) {
      x_step_bytes = 0;
#pragma unroll
      for (int i = 0; i < x_each; ++i) {
        const int row = min(share.x_row + x_row + i * x_row_step, call.m - 1);
        row_bytes[i] = x_row_of(call, row) * call.x_row_stride * 2;
      }
    } else {
      x += (share.x_row + x_row) * call.x_row_stride * 2;
      x_step_bytes = x_row_step * call.x_row_stride * 2;
    }
    x_rows_left = min(call.m - share.x_row, Config::block_m) - x_row;
    x_columns_left = call.k - column - x_column;
    x_target = x_column / 64 * Plan::x_tile_bytes + x_row * Plan::x_line_bytes;
    if constexpr (x_row_step % 8 == 0) x_target += (x_column / 8 % 8 ^ x_row % 8) * 16;

    codes_row_bytes = static_cast<i64>(k_tiles) * Plan::tile_bytes;
    codes = static_cast<const char*>(call.codes) + share.row_tile * codes_row_bytes +
            column / 64 * Plan::tile_bytes;
    scales_row_bytes = static_cast<i64>(groups) * Plan::group_bytes;
    scales = static_cast<const char*>(call.scales) + share.row_tile * scales_row_bytes;
    zeros = static_cast<const char*>(call.zero_points) + share.row_tile * scales_row_bytes;
    tiles_left = share.all_tiles - share.row_tile;
    k_tiles_left = k_tiles - column / 64;
    all_groups = groups;

    const int matrix = lane / 8, line = lane % 8;
    const int row = warp_m * Plan::columns * 8 + matrix / 2 * 8 + line;
    x_lane = warp_k * Plan::warp_k_tiles * Plan::x_tile_bytes + row * Plan::x_line_bytes +
             ((matrix % 2) ^ line) * 16;
    codes_lane = Plan::codes + warp_n * Plan::warp_tiles * Plan::codes_run_bytes +
                 warp_k * Plan::warp_k_tiles * Plan::tile_bytes +
                 TilePlanes<Config::Codes::bits>::lane_offset(lane);
    const int warp_group = warp_k * Plan::warp_k_tiles * 64 / Plan::group_size;
    scales_lane = Plan::scales +
                  (warp_n * Plan::warp_tiles * Plan::groups + warp_group) * Plan::group_bytes +
                  lane / 4 * 4;
  }

  __device__ __forceinline__ u32 stage(int slot) const { return ring + slot * Plan::stage_bytes; }

  // -- from global memory: stage after stage --

  // This thread's share of x in the next stage, or the `part`-th of `parts` of it.
  __device__ __forceinline__ void put_x(bool wanted, u32 base, int part = 0, int parts = 1) {
    const u32 bytes = min(max(x_columns_left, 0) * 2, 16);
#pragma unroll
    for (int i = 0; i < x_each; ++i) {
      if (i * parts / x_each != part) continue;
      const u32 target = base + x_place(i);
      const bool here = wanted && x_rows_left > i * x_row_step;
#if __CUDA_ARCH__ >= 800
      ptx::cp_async_16_if(here, target, Config::grouped ? x + row_bytes[i] : x, bytes);
#else
      if (here) ptx::store_shared_words4(target, held_x[i]);
#endif
      x += x_step_bytes;
    }
  }

  __device__ __forceinline__ void put_weights(bool wanted, u32 base) {
#pragma unroll
    for (int i = 0; i < codes_each; ++i) {
      const u32 target = base + Plan::codes + (thread + i * threads) * 16;
#if __CUDA_ARCH__ >= 800
      if constexpr (k_padded) {
        ptx::cp_async_streamed_if(wanted && codes_here(i), target, codes_source(i));
      } else {
        ptx::cp_async_16_if(wanted && codes_here(i), target, codes_source(i),
                            codes_inside(i) ? 16 : 0);
      }
#else
      if (wanted && codes_here(i)) ptx::store_shared_words4(target, held_codes[i]);
#endif
    }
#pragma unroll
    for (int i = 0; i < groups_each; ++i) {
      const u32 target = base + Plan::scales + (thread + i * threads) * 16;
#if __CUDA_ARCH__ >= 800
      ptx::cp_async_16_if(wanted && groups_here(i), target, groups_source(i), 16);
#else
      if (wanted && groups_here(i)) ptx::store_shared_words4(target, held_groups[i]);
#endif
    }
  }

  // To the next stage, or by some stages back; x counts from its first chunk again.
  __device__ __forceinline__ void next_x() {
    x += Config::block_k * 2 - x_each * x_step_bytes;
    x_columns_left -= Config::block_k;
  }
  __device__ __forceinline__ void next_weights() {
    codes += Plan::codes_run_bytes;
    column += Config::block_k;
    k_tiles_left -= Plan::k_tiles;
  }
  __device__ __forceinline__ void back(int stages) {
    x -= stages * Config::block_k * 2;
    x_columns_left += stages * Config::block_k;
    codes -= stages * Plan::codes_run_bytes;
    column -= stages * Config::block_k;
    k_tiles_left += stages * Plan::k_tiles;
  }

  // Where nothing is copied asynchronously: starts the loads whose words the next puts will store.
  __device__ __forceinline__ void fetch(bool wanted) {
#if __CUDA_ARCH__ < 800
    if (!wanted) return;
#pragma unroll
    for (int i = 0; i < x_each; ++i)
      if (x_rows_left > i * x_row_step)
        held_x[i] = part_of_row(x + (Config::grouped ? row_bytes[i] : i * x_step_bytes),
                                min(max(x_columns_left, 0), 8));
#pragma unroll
    for (int i = 0; i < codes_each; ++i)
      if (codes_here(i))
        held_codes[i] = codes_inside(i) ? ptx::load_global_streamed(codes_source(i)) : Words4{};
#pragma unroll
    for (int i = 0; i < groups_each; ++i)
      if (groups_here(i)) held_groups[i] = ptx::load_global_words4(groups_source(i));
#else
    (void)wanted;
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

  __device__ __forceinline__ u32 x_place(int i) const {
    const u32 line = x_target + i * x_row_step * Plan::x_line_bytes;
    if constexpr (x_row_step % 8 == 0) return line;
    const int row = thread / x_row_chunks + i * x_row_step;
    return line + (thread % 8 ^ row % 8) * 16;
  }

  // Chunk i of this thread: in a run of k tiles of one row tile. Codes past k are zero, as others
  // may be no numbers.
  __device__ __forceinline__ bool codes_here(int i) const {
    const int chunk = thread + i * threads;
    return (Plan::codes_chunks % threads == 0 || chunk < Plan::codes_chunks) &&
           chunk / run_chunks < tiles_left;
  }
  __device__ __forceinline__ bool codes_inside(int i) const {
    const int chunk = thread + i * threads;
    return k_padded || chunk % run_chunks / (Plan::tile_bytes / 16) < k_tiles_left;
  }
  __device__ __forceinline__ const char* codes_source(int i) const {
    const int chunk = thread + i * threads;
    return codes + chunk / run_chunks * codes_row_bytes + chunk % run_chunks * 16;
  }

  // The same of scales, and of zero points behind them.
  __device__ __forceinline__ bool groups_here(int i) const {
    const int chunk = thread + i * threads;
    return (Plan::group_chunks % threads == 0 || chunk < Plan::group_chunks) &&
           in_values(chunk) / group_run_chunks < tiles_left;
  }
  __device__ __forceinline__ const char* groups_source(int i) const {
    const int whole = thread + i * threads, chunk = in_values(whole);
    int group = column / Plan::group_size + chunk % group_run_chunks / 2;
    if (!k_padded) group = min(group, all_groups - 1);
    return (whole == chunk ? scales : zeros) + chunk / group_run_chunks * scales_row_bytes +
           group * Plan::group_bytes + chunk % 2 * 16;
  }
  static __device__ __forceinline__ int in_values(int chunk) {
    constexpr int of_scales = Plan::scales_bytes / 16;
    return Config::has_zero_points && chunk >= of_scales ? chunk - of_scales : chunk;
  }

  // -- to registers --

  // Two columns of the product, 16 rows of x, for one k step of 16.
  __device__ __forceinline__ void x_fragments(u32 (&low)[2], u32 (&high)[2], u32 stage_base,
                                              int k_tile, int step, int pair) const {
    ptx::ldmatrix_x4(low[0], low[1], high[0], high[1],
                     stage_base + (x_lane ^ (step * 32)) + k_tile * Plan::x_tile_bytes +
                         pair * 16 * Plan::x_line_bytes);
  }

  __device__ __forceinline__ void words(CodeWords<Config::Codes::bits>& words, u32 stage_base,
                                        int tile, int k_tile) const {
    thread_load_codes<Config::Codes::bits>(
        words, stage_base + codes_lane + tile * Plan::codes_run_bytes + k_tile * Plan::tile_bytes,
        lane);
  }

  // `group` counts from the warp's first one in the stage.
  __device__ __forceinline__ u32 scale_pair(u32 stage_base, int tile, int group) const {
    return ptx::load_shared_u32(stage_base + scales_lane +
                                (tile * Plan::groups + group) * Plan::group_bytes);
  }
  __device__ __forceinline__ u32 zero_pair(u32 stage_base, int tile, int group) const {
    return ptx::load_shared_u32(stage_base + scales_lane + Plan::scales_bytes +
                                (tile * Plan::groups + group) * Plan::group_bytes);
  }
};

}  // namespace humming
