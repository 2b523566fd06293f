// The sums of one tile of experts' rows: bias, rounding, and the store of each row's line.
// Run by all threads of a block.
// Reads -> writes: partial sums in shared memory, bias -> out [rows, n], two neighbouring n a thread.
// Source: own. A line's place is worked out once, not for each pair; rows that a tile lacks cost
//   nothing, and most tiles lack some.
#pragma once
#include "humming/memory/partials.cuh"
#include "humming/scheduler/skinny.cuh"

namespace humming {

// `first_row`: of w; `line(row)`: where out of row `row` of the tile begins, asked for by all lanes
// of a warp at the same time.
template <class Config, class Line>
__device__ __forceinline__ void block_store_lines(const Partials<Config>& partials,
                                                  const SkinnyCall& call, int first_row, int rows,
                                                  Line line) {
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
        v.x *= ptx::load_global_f32(scales), v.y *= ptx::load_global_f32(scales + 1);
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
