// The order of a warp's steps in one stage of the mma family where codes are multiplied: fragments
//   one piece ahead, codes decoded to bytes one step ahead, products, and sums of groups to fp32.
// Run by a whole converged warp.
// Reads -> writes: a stage in shared memory, through memory/ -> fp32 accumulator fragments.
// Source: own. Sums of a group are exact whole numbers, or stay in the tensor cores for 128 columns at
//   most; scales of both operands multiply them once. Scales of rows are left to the epilogue.
#pragma once
#include "humming/dequant/activation.cuh"
#include "humming/mainloop/mma.cuh"
#include "humming/memory/mma_bytes_operands.cuh"

namespace humming {

template <class Config>
struct MmaFragments<Config, typename Config::IsBytes> {
  using Plan = MmaPlan<Config>;
  using Products = typename Config::Products;
  using Codes = typename Config::Codes;
  using Sum = typename Products::Sum;
  static constexpr int piece = mma_piece(Plan::columns, Config::stream_k ? 4 : 8);
  static constexpr int pieces = Plan::columns / piece;
  static constexpr int steps = Plan::warp_lines * 4;
  static constexpr int tile_steps = 64 / Plan::step_k;
  static constexpr int promoted = Plan::promoted;  // columns
  static constexpr int promoted_steps = promoted ? promoted / Plan::step_k : 1;
  static constexpr bool has_zeros = Config::has_zero_points != 0;
  static constexpr bool x_grouped = Plan::x_grouped && !Plan::block_scaled;
  static constexpr int of_step = Plan::block_scaled ? Plan::step_k / Plan::part_k : 1;
  static constexpr float unit = Codes::lift >= 0
                                    ? 1.0f / (1 << (Codes::lift < 0 ? 0 : Codes::lift))
                                    : static_cast<float>(1 << (Codes::lift < 0 ? -Codes::lift : 0));

  u32 b[2][piece][2];
  u32 a[2][Plan::warp_tiles][4];
  CodeWords<Plan::rows ? 1 : Codes::bits> words[Plan::warp_tiles];
  ByteZeros zeros[Plan::warp_tiles];
  // Of the promoted columns that were read last, and of those before: the last piece of a step is
  // multiplied after the next step's were read.
  u32 scales[Plan::warp_tiles], scales_before[Plan::warp_tiles];
  float2 x_scales[Plan::columns], x_scales_before[Plan::columns];
  // Of both operands for a step, where tensor cores take scales along.
  u32 taken[2][Plan::warp_tiles], x_taken[2][Plan::columns];
  Sum part[Plan::warp_tiles][Plan::columns][4];

  // Sums over all of k begin at zero, and are converted once.
  __device__ __forceinline__ void begin() {
    if constexpr (promoted == 0) {
#pragma unroll
      for (int t = 0; t < Plan::warp_tiles; ++t)
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
          for (int j = 0; j < 4; ++j) part[t][c][j] = 0;
    }
  }
  __device__ __forceinline__ void finish(MmaSums<Config>& sums) const {
    if constexpr (promoted == 0) {
#pragma unroll
      for (int t = 0; t < Plan::warp_tiles; ++t)
#pragma unroll
        for (int c = 0; c < Plan::columns; ++c)
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[t][c][j] += Products::plain(part[t][c][j]) * unit;
    }
  }

  __device__ __forceinline__ void read_x(const MmaOperands<Config>& operands, u32 base, int step,
                                         int first_piece, int buffer) {
#pragma unroll
    for (int c = 0; c < piece; c += 2)
      operands.x_fragments(b[buffer][c], b[buffer][c + 1], base, step / 4, step % 4,
                           (first_piece * piece + c) / 2);
  }

  __device__ __forceinline__ void read_weights(const MmaOperands<Config>& operands, u32 base,
                                               int step) {
    if constexpr (Plan::block_scaled) take_scales(operands, base, step);
    const bool begins = promoted && step % promoted_steps == 0;
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t) {
      if constexpr (Plan::rows) {
        operands.rows(a[step % 2][t], base, t, step / 4, step % 4);
      } else {
        if (step % tile_steps == 0) operands.words(words[t], base, t, step / tile_steps);
      }
      if (begins) scales_before[t] = scales[t];
      if (Plan::grouped && !Plan::block_scaled && step * Plan::step_k % Plan::group_size == 0) {
        const int group = step * Plan::step_k / Plan::group_size;
        scales[t] = operands.scale_pair(base, t, group);
        if constexpr (has_zeros) zeros[t] = zeros_of(operands.zero_pair(base, t, group));
      }
    }
    if (x_grouped && begins) {
#pragma unroll
      for (int c = 0; c < Plan::columns; ++c) {
        x_scales_before[c] = x_scales[c];
        x_scales[c] = operands.x_scale_pair(base, step / promoted_steps, c);
      }
    }
  }

  __device__ __forceinline__ void scale_weights(int step, int buffer) {
    if constexpr (!Plan::rows) {
#pragma unroll
      for (int t = 0; t < Plan::warp_tiles; ++t) {
        if constexpr (tile_steps == 1) {
          Codes::whole(a[buffer][t], words[t].word);
        } else {
          byte_fragment<Codes>(a[buffer][t], words[t].word, step % tile_steps, zeros[t]);
        }
      }
    }
  }

  __device__ __forceinline__ void multiply(MmaSums<Config>& sums, int step, int number,
                                           int buffer) {
    const bool first = promoted && step % promoted_steps == 0;
    const bool last = promoted && (step + 1) % promoted_steps == 0;
#pragma unroll
    for (int i = 0; i < piece; ++i)
#pragma unroll
      for (int t = 0; t < Plan::warp_tiles; ++t) {
        Sum(&of)[4] = part[t][number * piece + i];
        if constexpr (Plan::block_scaled) {
          Products::warp_multiply(of, a[step % 2][t], b[buffer][i], taken[step % 2][t],
                                  x_taken[step % 2][number * piece + i]);
        } else if (first) {
          const Sum begin[4] = {Products::first, Products::first, Products::first, Products::first};
          Products::warp_multiply(of, a[step % 2][t], b[buffer][i], begin);
        } else {
          Products::warp_multiply(of, a[step % 2][t], b[buffer][i], of);
        }
      }
    if (last) promote(sums, number);
  }

 private:
  __device__ __forceinline__ void take_scales(const MmaOperands<Config>& operands, u32 base,
                                              int step) {
    float of[of_step];
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t) {
#pragma unroll
      for (int i = 0; i < of_step; ++i) {
        const u32 pair = operands.scale_pair(base, t, step * of_step + i);
        of[i] = Config::Scale::widen(static_cast<u16>(pair >> threadIdx.x % 2 * 16));
      }
      taken[step % 2][t] = Products::bytes(of);
    }
#pragma unroll
    for (int c = 0; c < Plan::columns; ++c) {
#pragma unroll
      for (int i = 0; i < of_step; ++i) of[i] = operands.x_scale_one(base, step * of_step + i, c);
      x_taken[step % 2][c] = Products::bytes(of);
    }
  }

  // The sums of a piece's columns, times the scales of both operands.
  __device__ __forceinline__ void promote(MmaSums<Config>& sums, int number) const {
    const bool before = number == pieces - 1;
#pragma unroll
    for (int t = 0; t < Plan::warp_tiles; ++t) {
      const float2 of_rows = factors(before ? scales_before[t] : scales[t]);
#pragma unroll
      for (int i = 0; i < piece; ++i) {
        const int c = number * piece + i;
        const float2 of_x = before ? x_scales_before[c] : x_scales[c];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float factor = j < 2 ? of_rows.x : of_rows.y;
          if constexpr (x_grouped) factor *= j % 2 == 0 ? of_x.x : of_x.y;
          sums[t][c][j] += Products::promoted(part[t][c][j]) * factor;
        }
      }
    }
  }

  // What sums of rows g and g + 8 are multiplied by.
  static __device__ __forceinline__ float2 factors(u32 scale) {
    if constexpr (!Plan::grouped) {
      return {unit, unit};
    } else if constexpr (Config::block_scales != 0) {
      const float shared = __uint_as_float(scale) * unit;
      return {shared, shared};
    } else {
      using Scale = typename Config::Scale;
      return {Scale::widen(static_cast<u16>(scale)) * unit,
              Scale::widen(static_cast<u16>(scale >> 16)) * unit};
    }
  }
  static __device__ __forceinline__ ByteZeros zeros_of(u32 pair) {
    using Scale = typename Config::Scale;
    const int low = static_cast<int>(Scale::widen(static_cast<u16>(pair)));
    const int high = static_cast<int>(Scale::widen(static_cast<u16>(pair >> 16)));
    return {{in_bytes(low), in_bytes(high)}};
  }
};

}  // namespace humming
