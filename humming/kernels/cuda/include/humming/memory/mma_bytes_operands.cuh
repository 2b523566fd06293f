// The operands of an mma block that multiplies codes: global memory -> a ring of stages -> fragments.
// Run by one thread (copies); by a whole warp, converged (fragments).
// Reads -> writes: codes and scales of x and w in global memory -> shared memory -> registers.
// Source: own, as mma_operands.cuh. x is zero from k to whole 128 columns, and so are codes of w
//   that multiply nothing else; rows beyond m and n hold anything, as nobody reads their sums.
#pragma once
#include "humming/dequant/byte_codes.cuh"
#include "humming/memory/code_words.cuh"
#include "humming/memory/mma_bytes_plan.cuh"
#include "humming/memory/mma_lines.cuh"
#include "humming/ptx/matrix.cuh"
#include "humming/ptx/move.cuh"
#include "humming/scheduler/mma.cuh"

namespace humming {

template <bool wanted, class Yes, class No>
struct MmaEither {
  using Type = Yes;
};
template <class Yes, class No>
struct MmaEither<false, Yes, No> {
  using Type = No;
};

template <class Config>
struct MmaOperands<Config, typename Config::IsBytes> {
  using Plan = MmaPlan<Config>;
  using Codes = typename Config::Codes;
  static constexpr int threads = Plan::threads;
  using XLines = typename MmaEither<Config::grouped != 0,
                                    MmaGatheredLines<Config::block_m, Plan::lines, threads>,
                                    MmaLines<Config::block_m, Plan::lines, threads>>::Type;
  using CodeLines = typename MmaEither<Plan::rows, MmaLines<Config::block_n, Plan::lines, threads>,
                                       MmaNoLines>::Type;
  static constexpr int x_each = XLines::each;
  static constexpr int tiles_each = Plan::rows ? 0 : (Plan::codes_chunks + threads - 1) / threads;
  static constexpr int groups_each = (Plan::group_chunks + threads - 1) / threads;
  // Four neighbouring rows' scales of x, or a row's, of experts.
  static constexpr int x_scales_rows = Config::grouped ? 1 : 4;
  static constexpr int x_scales_chunks = Plan::x_scales_bytes / (4 * x_scales_rows);
  static constexpr int x_scales_each = (x_scales_chunks + threads - 1) / threads;
  static constexpr int run_chunks = Plan::codes_run_bytes / 16;
  static constexpr int group_run_chunks =
      Plan::grouped ? Plan::groups * (Config::block_scales ? 1 : 2) : 1;
  static constexpr bool k_padded = Config::block_k <= 128;  // no stage ends beyond the packed k

  u32 ring;
  XLines x;
  CodeLines code_lines;
  const char* codes;  // where they are no rows: of the block's first row tile in stage `next`
  const char* scales;
  const char* zeros;
  const float* x_scales;  // of the block's first row
  i64 codes_row_bytes, scales_row_bytes, x_scales_pitch;
  int tiles_left, x_rows_left;
  int column, x_column, k, padded_k;
  u32 x_lane, codes_lane, scales_lane, x_scales_lane;         // of this lane in a stage
  u32 x_scales_row[Config::grouped ? x_scales_each + 1 : 1];  // of experts, of this thread's chunks
  int thread;
  u32 lane;

#if __CUDA_ARCH__ >= 800
  static constexpr bool asynchronous = true;
#else
  static constexpr bool asynchronous = false;
  Words4 held_codes[tiles_each + 1], held_groups[groups_each + 1];
  Words4 held_x_scales[x_scales_each + 1];
#endif

  __device__ __forceinline__ MmaOperands(const MmaCall& call, const MmaShare& share, u32 shared,
                                         int warp_m, int warp_n, int warp_k, int thread_)
      : ring(shared),
        x(lines_of_x(call, share, thread_)),
        code_lines(static_cast<const char*>(call.codes) +
                       share.row_tile * 16 * static_cast<i64>(padded(call.k)) +
                       share.first_stage * Config::block_k,
                   padded(call.k), (share.all_tiles - share.row_tile) * 16,
                   padded(call.k) - share.first_stage * Config::block_k, thread_),
        thread(thread_),
        lane(thread_ % 32) {
    k = call.k, padded_k = padded(call.k);
    tiles_left = share.all_tiles - share.row_tile;
    column = x_column = share.first_stage * Config::block_k;
    codes_row_bytes = static_cast<i64>(padded_k / 64) * Plan::tile_bytes;
    codes = static_cast<const char*>(call.codes) + share.row_tile * codes_row_bytes +
            column / 64 * Plan::tile_bytes;
    scales_row_bytes = static_cast<i64>(padded_k / Plan::group_size) * Plan::group_bytes;
    scales = static_cast<const char*>(call.scales) + share.row_tile * scales_row_bytes;
    zeros = static_cast<const char*>(call.zero_points) + share.row_tile * scales_row_bytes;
    x_scales = call.x_scales + (Config::grouped ? 0 : share.x_row);
    if constexpr (Config::grouped)
#pragma unroll
      for (int i = 0; i < x_scales_each; ++i) {
        const int row = share.x_row + (thread + i * threads) % Config::block_m;
        x_scales_row[i] = static_cast<u32>(x_row_of(call, min(row, call.m - 1)));
      }
    x_scales_pitch = call.x_scales_pitch;
    x_rows_left = call.m - share.x_row;

    const int matrix = lane / 8, line = lane % 8;
    const int row = warp_m * Plan::columns * 8 + matrix / 2 * 8 + line;
    x_lane = warp_k * Plan::warp_lines * Plan::x_tile_bytes + row * Plan::line_bytes +
             ((matrix % 2) ^ line) * 16;
    if constexpr (Plan::rows) {
      const int of_tile = warp_n * Plan::warp_tiles * 16 + matrix % 2 * 8 + line;
      codes_lane = Plan::codes + warp_k * Plan::warp_lines * Config::block_n * Plan::line_bytes +
                   of_tile * Plan::line_bytes + ((matrix / 2) ^ line) * 16;
    } else {
      codes_lane = Plan::codes + warp_n * Plan::warp_tiles * Plan::codes_run_bytes +
                   warp_k * Plan::warp_lines * Plan::line_tiles * Plan::tile_bytes +
                   TilePlanes<Codes::bits>::lane_offset(lane);
    }
    const int warp_column = warp_k * Plan::warp_lines * Plan::line_k;
    scales_lane = Plan::scales +
                  (warp_n * Plan::warp_tiles * Plan::groups + warp_column / Plan::group_size) *
                      Plan::group_bytes +
                  (Config::block_scales ? 0 : lane / 4 * 4);
    x_scales_lane = Plan::x_scales +
                    (warp_column / Plan::part_k * Config::block_m + warp_m * Plan::columns * 8 +
                     (Plan::block_scaled ? lane / 4 : lane % 4 * 2)) *
                        4;
  }

  static __device__ __forceinline__ XLines lines_of_x(const MmaCall& call, const MmaShare& share,
                                                      int thread) {
    const int skipped = share.first_stage * XLines::stage_bytes;
    if constexpr (Config::grouped) {
      return XLines(call, share.x_row, skipped, thread);
    } else {
      return XLines(static_cast<const char*>(call.x) + share.x_row * call.x_row_stride + skipped,
                    call.x_row_stride, call.m - share.x_row,
                    static_cast<int>(call.x_row_stride) - skipped, thread);
    }
  }
  static __device__ __forceinline__ int padded(int k) { return (k + 127) / 128 * 128; }
  __device__ __forceinline__ u32 stage(int slot) const { return ring + slot * Plan::stage_bytes; }

  // -- from global memory: stage after stage --

  // This thread's share of x in the next stage, or the `part`-th of `parts` of it.
  __device__ __forceinline__ void put_x(bool wanted, u32 base, int part = 0, int parts = 1) {
#pragma unroll
    for (int i = 0; i < x_each; ++i)
      if (i * parts / x_each == part) x.template put<false>(wanted, base, i);
    if (part != parts - 1) return;
#pragma unroll
    for (int i = 0; i < x_scales_each; ++i) {
      const int chunk = thread + i * threads;
      const bool here = wanted && x_scales_here(chunk);
#if __CUDA_ARCH__ >= 800
      if constexpr (Config::grouped != 0) {
        ptx::cp_async_4_if(here, base + Plan::x_scales + chunk * 4, x_scales_source(chunk, i));
      } else {
        ptx::cp_async_16_if(here, base + Plan::x_scales + chunk * 16, x_scales_source(chunk, i),
                            x_scales_inside(chunk) ? 16 : 0);
      }
#else
      if (!here) continue;
      if constexpr (Config::grouped != 0) {
        ptx::store_shared_u32(base + Plan::x_scales + chunk * 4, held_x_scales[i].word[0]);
      } else {
        ptx::store_shared_words4(base + Plan::x_scales + chunk * 16, held_x_scales[i]);
      }
#endif
    }
  }

  __device__ __forceinline__ void put_weights(bool wanted, u32 base) {
#pragma unroll
    for (int i = 0; i < CodeLines::each; ++i)
      code_lines.template put<true>(wanted, base + Plan::codes, i);
#pragma unroll
    for (int i = 0; i < tiles_each; ++i) {
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
      const int chunk = thread + i * threads;
      const bool here = wanted && groups_here(chunk);
#if __CUDA_ARCH__ >= 800
      if constexpr (Config::block_scales != 0) {
        ptx::cp_async_4_if(here, base + Plan::scales + chunk * 4, groups_source(chunk));
      } else {
        ptx::cp_async_16_if(here, base + Plan::scales + chunk * 16, groups_source(chunk), 16);
      }
#else
      if (here) ptx::store_shared_words4(base + Plan::scales + chunk * 16, held_groups[i]);
#endif
    }
  }

  // To the next stage, or by some stages back.
  __device__ __forceinline__ void next_x() {
    x.next();
    x_column += Config::block_k;
  }
  __device__ __forceinline__ void next_weights() {
    code_lines.next();
    codes += Plan::codes_run_bytes;
    column += Config::block_k;
  }
  __device__ __forceinline__ void back(int stages) {
    x.back(stages), code_lines.back(stages);
    codes -= stages * Plan::codes_run_bytes;
    x_column -= stages * Config::block_k, column -= stages * Config::block_k;
  }

  // Where nothing is copied asynchronously: starts the loads whose words the next puts will store.
  __device__ __forceinline__ void fetch(bool wanted) {
#if __CUDA_ARCH__ < 800
    if (!wanted) return;
    x.fetch(), code_lines.fetch();
#pragma unroll
    for (int i = 0; i < tiles_each; ++i)
      if (codes_here(i))
        held_codes[i] = codes_inside(i) ? ptx::load_global_streamed(codes_source(i)) : Words4{};
#pragma unroll
    for (int i = 0; i < groups_each; ++i)
      if (groups_here(thread + i * threads))
        held_groups[i] = ptx::load_global_words4(groups_source(thread + i * threads));
#pragma unroll
    for (int i = 0; i < x_scales_each; ++i) {
      const int chunk = thread + i * threads;
      if (!x_scales_here(chunk)) continue;
      if constexpr (Config::grouped != 0) {
        held_x_scales[i].word[0] = ptx::load_global_u32(x_scales_source(chunk, i));
      } else {
        held_x_scales[i] =
            x_scales_inside(chunk) ? ptx::load_global_words4(x_scales_source(chunk, i)) : Words4{};
      }
    }
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

  // Chunk i of this thread: in a run of k tiles of one row tile.
  __device__ __forceinline__ bool codes_here(int i) const {
    const int chunk = thread + i * threads;
    return (Plan::codes_chunks % threads == 0 || chunk < Plan::codes_chunks) &&
           chunk / run_chunks < tiles_left;
  }
  __device__ __forceinline__ bool codes_inside(int i) const {
    const int tile = (thread + i * threads) % run_chunks / (Plan::tile_bytes / 16);
    return k_padded || column + tile * 64 < padded_k;
  }
  __device__ __forceinline__ const char* codes_source(int i) const {
    const int chunk = thread + i * threads;
    return codes + chunk / run_chunks * codes_row_bytes + chunk % run_chunks * 16;
  }

  // Of scales, and of zero points behind them. Groups beyond the packed ones are the last again.
  __device__ __forceinline__ bool groups_here(int chunk) const {
    return (Plan::group_chunks % threads == 0 || chunk < Plan::group_chunks) &&
           in_values(chunk) / group_run_chunks < tiles_left;
  }
  __device__ __forceinline__ const char* groups_source(int whole) const {
    constexpr int of_group = Config::block_scales ? 1 : 2;
    const int chunk = in_values(whole);
    int group = column / Plan::group_size + chunk % group_run_chunks / of_group;
    if (!k_padded) group = min(group, padded_k / Plan::group_size - 1);
    return (whole == chunk ? scales : zeros) + chunk / group_run_chunks * scales_row_bytes +
           group * Plan::group_bytes + chunk % of_group * 16;
  }
  static __device__ __forceinline__ int in_values(int chunk) {
    constexpr int of_scales = Plan::scales_bytes / 16;
    return Config::has_zero_points && chunk >= of_scales ? chunk - of_scales : chunk;
  }

  // Rows' scales of x in a part of the stage's columns; beyond k they are zero, or those before, as
  // the sums that they multiply are zero, and others may be no numbers.
  __device__ __forceinline__ bool x_scales_here(int chunk) const {
    return chunk < x_scales_chunks && x_scales_of(chunk) < x_rows_left;
  }
  static __device__ __forceinline__ int x_scales_of(int chunk) {
    return chunk % (Config::block_m / x_scales_rows) * x_scales_rows;
  }
  __device__ __forceinline__ bool x_scales_inside(int chunk) const {
    return x_scales_column(chunk) < k;
  }
  __device__ __forceinline__ const char* x_scales_source(int chunk, int i) const {
    constexpr int size = Config::x_group_size ? Config::x_group_size : 1;
    const i64 group = min(x_scales_column(chunk), k - 1) / size;
    return reinterpret_cast<const char*>(x_scales + group * x_scales_pitch +
                                         (Config::grouped ? x_scales_row[i] : x_scales_of(chunk)));
  }
  __device__ __forceinline__ int x_scales_column(int chunk) const {
    return x_column + chunk / (Config::block_m / x_scales_rows) * Plan::part_k;
  }

  // -- to registers --

  // Two columns of the product, 16 rows of x, for one step.
  __device__ __forceinline__ void x_fragments(u32 (&low)[2], u32 (&high)[2], u32 stage_base,
                                              int line, int step, int pair) const {
    ptx::ldmatrix_x4(low[0], low[1], high[0], high[1],
                     stage_base + (x_lane ^ (step * 32)) + line * Plan::x_tile_bytes +
                         pair * 16 * Plan::line_bytes);
  }

  __device__ __forceinline__ void words(CodeWords<Codes::bits>& words, u32 stage_base, int tile,
                                        int k_tile) const {
    thread_load_codes<Codes::bits>(
        words, stage_base + codes_lane + tile * Plan::codes_run_bytes + k_tile * Plan::tile_bytes,
        lane);
  }
  // The fragment itself, of codes in rows.
  __device__ __forceinline__ void rows(u32 (&a)[4], u32 stage_base, int tile, int line,
                                       int step) const {
    ptx::ldmatrix_x4(a[0], a[1], a[2], a[3],
                     stage_base + (codes_lane ^ (step * 32)) +
                         line * (Config::block_n * Plan::line_bytes) +
                         tile * 16 * Plan::line_bytes);
  }

  // `group` counts from the warp's first one in the stage. Of a row tile's rows, or the bits of what
  // they share.
  __device__ __forceinline__ u32 scale_pair(u32 stage_base, int tile, int group) const {
    return ptx::load_shared_u32(stage_base + scales_lane +
                                (tile * Plan::groups + group) * Plan::group_bytes);
  }
  __device__ __forceinline__ u32 zero_pair(u32 stage_base, int tile, int group) const {
    return ptx::load_shared_u32(stage_base + scales_lane + Plan::scales_bytes +
                                (tile * Plan::groups + group) * Plan::group_bytes);
  }
  // Of row lane / 4 of a column of the product, where tensor cores take scales along.
  __device__ __forceinline__ float x_scale_one(u32 stage_base, int part, int c) const {
    return ptx::load_shared_f32(stage_base + x_scales_lane + (part * Config::block_m + c * 8) * 4);
  }
  // Of the two rows of x of a column of the product.
  __device__ __forceinline__ float2 x_scale_pair(u32 stage_base, int part, int c) const {
    return ptx::load_shared_f32x2(stage_base + x_scales_lane +
                                  (part * Config::block_m + c * 8) * 4);
  }
};

}  // namespace humming
