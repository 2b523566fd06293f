// The sums of one tile of experts' rows: bias, rounding, and the store of each row's line.
// Run by all threads of a block.
// Reads -> writes: partial sums in shared memory, bias -> out [rows, n], eight neighbouring n a
//   thread, or two where out, its rows, n, bias or scales begin at no multiple of 16 bytes.
// Source: own. A line's place is worked out once, not for each pair; rows that a tile lacks cost
//   nothing, and most tiles lack some. By pairs alone, an H200 spent a quarter of all instructions
//   of 256 experts of 7168x256, 256 tokens, in stores.
#pragma once
#include "humming/memory/partials.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

// Whether every thread may store 16 bytes of a line at once.
__device__ __forceinline__ bool lines_are_wide(const SkinnyCall& call) {
  const u64 places = reinterpret_cast<u64>(call.out) | reinterpret_cast<u64>(call.bias) |
                     reinterpret_cast<u64>(call.row_scales);
  return ((places | static_cast<u64>(call.out_row_stride * 2) | static_cast<u64>(call.n) * 2) &
          15) == 0;
}

// Eight fp32 values that follow each other.
__device__ __forceinline__ void load_eight(float (&to)[8], const float* from) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const Words4 v = ptx::load_global_words4(from + 4 * half);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[4 * half + i] = __uint_as_float(v.word[i]);
  }
}

// As block_store_lines, where lines are wide. A thread keeps to its columns, so that their scales and
// bias are read once.
template <class Config, class Line>
__device__ __forceinline__ void block_store_wide_lines(const Partials<Config>& partials,
                                                       const SkinnyCall& call, int first_row,
                                                       int rows, Line line) {
  constexpr int pieces = Config::template Plan<Config>::block_rows / 8;
  constexpr int threads = Config::warps * 32, at_once = threads / pieces;
  static_assert(at_once > 0, "a thread for each eight columns");
  const int own = static_cast<int>(threadIdx.x) % pieces, ahead = threadIdx.x / pieces;
  const int column = first_row + 8 * own;
  const bool has_part = ahead < at_once && column < call.n;
  float scales[8], bias[8] = {};
  if (has_part) {
    if constexpr (Config::has_row_scales) load_eight(scales, call.row_scales + column);
    if (call.bias != nullptr) load_eight(bias, call.bias + column);
  }
#pragma unroll 1
  for (int first = 0; first < rows; first += at_once) {
    const int row = first + ahead;
    u16* target = line(min(row, rows - 1)) + column;
    if (has_part && row < rows) {
      float v[8];
      partials.block_sum(v, row, 8 * own);
      Words4 packed;
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        if constexpr (Config::has_row_scales) {  // rounded, as beside it by pairs
          v[i] = __fmul_rn(v[i], scales[i]);
          v[i + 1] = __fmul_rn(v[i + 1], scales[i + 1]);
        }
        packed.word[i / 2] = Config::Activation::pack(v[i] + bias[i], v[i + 1] + bias[i + 1]);
      }
      ptx::store_global_words4(target, packed);
    }
  }
}

// `first_row`: of w; `line(row)`: where out of row `row` of the tile begins, asked for by all lanes
// of a warp at the same time.
template <class Config, class Line>
__device__ __forceinline__ void block_store_lines(const Partials<Config>& partials,
                                                  const SkinnyCall& call, int first_row, int rows,
                                                  Line line) {
  if (lines_are_wide(call))
    return block_store_wide_lines<Config>(partials, call, first_row, rows, line);
  constexpr int row_pairs = Config::template Plan<Config>::block_rows / 2;
  constexpr int threads = Config::warps * 32, of_line = threads < row_pairs ? threads : row_pairs;
  constexpr int at_once = threads / of_line;
  const int own = static_cast<int>(threadIdx.x) % of_line, ahead = threadIdx.x / of_line;
#pragma unroll 1
  for (int first = 0; first < rows; first += at_once) {
    const int row = first + ahead;
    u16* target = line(min(row, rows - 1)) + first_row;
    if (ahead >= at_once || row >= rows) continue;
    const bool words = (reinterpret_cast<u64>(target) & 3) == 0;
#pragma unroll 2
    for (int pair = own; pair < row_pairs; pair += of_line) {
      const int left = call.n - first_row - 2 * pair;
      if (left <= 0) break;
      float2 v = partials.block_sum(row, pair);
      if constexpr (Config::has_row_scales) {  // padded to whole row tiles
        const float* scales = call.row_scales + first_row + 2 * pair;
        v.x = __fmul_rn(v.x, ptx::load_global_f32(scales));
        v.y = __fmul_rn(v.y, ptx::load_global_f32(scales + 1));
      }
      if (call.bias != nullptr) {
        const float* bias = call.bias + first_row + 2 * pair;
        v.x += ptx::load_global_f32(bias);
        if (left > 1) v.y += ptx::load_global_f32(bias + 1);
      }
      const u32 packed = Config::Activation::pack(v.x, v.y);
      if (words && left > 1) {
        ptx::store_global_u32(target + 2 * pair, packed);
      } else {
        ptx::store_global_u16(target + 2 * pair, static_cast<u16>(packed));
        if (left > 1) ptx::store_global_u16(target + 2 * pair + 1, static_cast<u16>(packed >> 16));
      }
    }
  }
}

}  // namespace humming
